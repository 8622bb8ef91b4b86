#include "families/lists.h"
#include <string.h>

static const nn_family *const all[] = {
#define NN_FAMILY(name) &nn_family_##name,
#include "families/families.def"
#undef NN_FAMILY
};
enum { ALL = sizeof all / sizeof *all };

const nn_family *nn_family_get(int64_t n) { return n >= 0 && n < ALL ? all[n] : NULL; }

const nn_family *nn_family_find(const char *type)
{
    for (int n = 0; n < ALL; n++)
        if (strcmp(all[n]->type, type) == 0) return all[n];
    return NULL;
}

bool nn_family_has(const nn_family *f, nn_part_kind kind, bool decoder)
{
    for (int n = 0; n < NN_FAMILY_LISTS; n++)
        for (const nn_name *name = f->names[n]; name && name->name; name++)
            if (nn_name_fits(name, kind, decoder)) return true;
    return false;
}
