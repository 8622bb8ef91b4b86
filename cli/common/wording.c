#include "cli/common/wording.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* The row whose words begin here and end before anything that could continue a name, such as the rest of a path. */
static const wording *word_at(const char *at, const wording *words)
{
    for (; words->library; words++) {
        size_t length = strlen(words->library);
        if (strncmp(at, words->library, length) != 0) continue;
        unsigned char after = (unsigned char)at[length];
        if (!after || (!isalnum(after) && !strchr("._-/", after))) return words;
    }
    return NULL;
}

const char *wording_apply(char *out, size_t room, const char *message, const wording *words)
{
    size_t n = 0;
    out[0] = 0;
    for (const char *at = message; *at && n + 1 < room;) {
        const wording *word = at == message || at[-1] == ' ' ? word_at(at, words) : NULL;
        if (word) {
            n += (size_t)snprintf(out + n, room - n, "%s", word->command);
            at += strlen(word->library);
        } else {
            out[n++] = *at++;
            out[n] = 0;
        }
    }
    return out;
}
