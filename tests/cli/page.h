/* For tests of HTML pages and SVG pictures: what is in them, and whether they hold together. */
#ifndef PAGE_H
#define PAGE_H

#include "support/harness.h"

static inline int count_of(const char *text, const char *word)
{
    int count = 0;
    for (; (text = strstr(text, word)); text += strlen(word)) count++;
    return count;
}

/* Every tag that is opened is closed, in order; those that HTML never closes aside. */
static inline void expect_closed(const char *page)
{
    enum { DEEP = 40 };
    char open[DEEP][20];
    int depth = 0;
    for (const char *at = page; (at = strchr(at, '<')); at++) {
        char name[20] = "";
        bool closes = at[1] == '/';
        sscanf(at + 1 + closes, "%19[a-z0-9]", name); // NOLINT(cert-err34-c): a word
        const char *end = strchr(at, '>');
        if (!expect(end, "a tag without an end")) return;
        if (!*name || end[-1] == '/' || !strcmp(name, "meta") || !strcmp(name, "br")) continue;
        if (!closes) {
            if (!expect(depth < DEEP, "too deep")) return;
            snprintf(open[depth++], sizeof open[0], "%s", name);
        } else {
            if (!expect(depth > 0 && !strcmp(open[depth - 1], name), "</%s> closes <%s>", name,
                        depth ? open[depth - 1] : ""))
                return;
            depth--;
        }
    }
    expect(depth == 0, "<%s> is not closed", depth ? open[depth - 1] : "");
}

#endif
