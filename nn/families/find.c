#include "families/find.h"
#include "families/wrapped.h"
#include <stdio.h>
#include <string.h>

enum { NAME = 256 + 64 };

nn_find nn_find_in(const nn_shards *shards, const nn_family *family, const nn_head *head, const nn_config *config)
{
    return (nn_find){shards, family, head, nn_wrapped_type(config) != NULL};
}

const nn_safetensors_tensor *nn_find_name(const nn_find *in, const char *name)
{
    char other[NAME];
    const char *prefix = in->family->prefix ? in->family->prefix : "model.";
    const char *instead = in->head ? in->head->prefix : NULL;
    size_t length = strlen(prefix);
    bool begins = strncmp(name, prefix, length) == 0;
    const nn_safetensors_tensor *t = nn_shards_find(in->shards, name);
    if (!t && begins) t = nn_shards_find(in->shards, name + length);
    if (!t) {
        snprintf(other, sizeof other, "%s%s", prefix, name);
        t = nn_shards_find(in->shards, other);
    }
    for (int n = 0; !t && in->wrapped && nn_wrapped_name(other, sizeof other, name, n); n++)
        t = nn_shards_find(in->shards, other);
    if (!t && instead && begins) {
        snprintf(other, sizeof other, "%s%s", instead, name + length);
        t = nn_shards_find(in->shards, other);
    }
    return t;
}

/* The first tensor that has a name of such a part, of the head or of the family; NULL: none. */
static const nn_safetensors_tensor *find_part(const nn_find *in, nn_part_kind kind, bool decoder)
{
    const nn_safetensors_tensor *found = NULL;
    for (int n = -1; n < NN_FAMILY_LISTS && !found; n++) {
        const nn_name *name = n >= 0 ? in->family->names[n] : in->head ? in->head->names : NULL;
        for (; name && name->name && !found; name++)
            if (nn_name_fits(name, kind, decoder)) found = nn_find_name(in, name->name);
    }
    return found;
}

bool nn_find_tied(const nn_find *in, const nn_description *d)
{
    bool decoder = d->decoder.blocks.depth > 0;
    if (!d->output.classes || (!d->output.tied && !(in->family->own_head && in->head))) return false;
    const nn_safetensors_tensor *own = find_part(in, NN_OUTPUT, decoder), *tokens = find_part(in, NN_TOKENS, decoder);
    if (!own || !tokens || own->data == tokens->data) return true;
    return own->dtype == tokens->dtype && own->count == tokens->count &&
           memcmp(own->data, tokens->data, (size_t)(own->end - own->begin)) == 0;
}

bool nn_find_is_spare_head(const nn_find *in, const nn_description *d, const nn_safetensors_tensor *t)
{
    bool other = !d->output.classes || (in->head && in->head->names);
    for (int n = 0; n < NN_FAMILY_LISTS; n++)
        for (const nn_name *name = in->family->names[n]; name && name->name; name++) {
            bool spare =
                (name->part == NN_OUTPUT && (other || d->output.tied)) || (name->part == NN_OUTPUT_BIAS && other);
            if (spare && nn_find_name(in, name->name) == t) return true;
        }
    return false;
}
