/* Names for people: statuses and the version. */
#include "mha.h"

#define TEXT(x)  #x
#define VALUE(x) TEXT(x)

const char *mha_status_name(mha_status status)
{
    static const char *const names[] = {"MHA_OK",      "MHA_BAD_ARGUMENT", "MHA_BAD_SHAPE", "MHA_BAD_TYPE",
                                        "MHA_OVERLAP", "MHA_TOO_LARGE",    "MHA_NO_MEMORY", "MHA_NO_ISA",
                                        "MHA_FULL",    "MHA_NO_DEVICE",    "MHA_BAD_FILE"};
    unsigned index = (unsigned)status;
    return index < sizeof names / sizeof *names ? names[index] : "unknown status";
}

const char *mha_version(void)
{
    return VALUE(MHA_VERSION_MAJOR) "." VALUE(MHA_VERSION_MINOR) "." VALUE(MHA_VERSION_PATCH);
}
