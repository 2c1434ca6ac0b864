package contract

// MaxTenant is the longest tenant, in bytes.
const MaxTenant = 128

// ValidateTenant checks the name of a tenant: 1 to [MaxTenant] bytes of UTF-8 without control characters or white space
// around it. The error is an *[InvalidError] with the path "/tenant".
func ValidateTenant(tenant string) error { return checkText("/tenant", tenant, MaxTenant) }

// ValidateText checks any other name by the same rules, with a limit in bytes. The error is an *[InvalidError] at path.
func ValidateText(path, text string, limit int) error { return checkText(path, text, limit) }
