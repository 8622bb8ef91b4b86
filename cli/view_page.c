/* The frame with everything put in its place, and the pieces that data are made of. */
#include "view_page.h"
#include "json.h"
#include "replace.h"
#include "sheet_parts.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* ---- Pieces of JSON --------------------------------------------------------------------------------------------- */

void view_string(FILE *out, const char *text)
{
    char quoted[800];
    for (const char *c = json_quote(quoted, sizeof quoted, text); *c; c++) {
        if (*c == '<') fputs("\\u003c", out);
        else fputc(*c, out);
    }
}

void view_number(FILE *out, double x)
{
    if (isfinite(x)) fprintf(out, "%.9g", x);
    else fputs("null", out);
}

void view_base64(FILE *out, const void *bytes, size_t size)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *from = bytes;
    fputc('"', out);
    for (size_t i = 0; i < size; i += 3) {
        uint32_t three = (uint32_t)from[i] << 16;
        if (i + 1 < size) three |= (uint32_t)from[i + 1] << 8;
        if (i + 2 < size) three |= from[i + 2];
        char four[] = {digits[three >> 18], digits[three >> 12 & 63], i + 1 < size ? digits[three >> 6 & 63] : '=',
                       i + 2 < size ? digits[three & 63] : '='};
        fwrite(four, 1, sizeof four, out);
    }
    fputc('"', out);
}

const char *view_title(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* ---- The page --------------------------------------------------------------------------------------------------- */

typedef struct parts {
    const char *title, *data;
    size_t size; /* of the data */
} parts;

static void put_title(FILE *out, const parts *p) { sheet_text(out, p->title); }

static void put_style(FILE *out, const parts *p)
{
    (void)p;
    fputs("<style>\n", out);
    fwrite(view_style, 1, view_style_size, out);
    fputs("</style>", out);
}

static void put_data(FILE *out, const parts *p)
{
    fputs("<script type=\"application/json\" id=\"mha-data\">", out);
    fwrite(p->data, 1, p->size, out);
    fputs("</script>", out);
}

static void put_script(FILE *out, const parts *p)
{
    (void)p;
    fputs("<script type=\"module\">\n", out);
    fwrite(view_script, 1, view_script_size, out);
    fputs("</script>", out);
}

static void put_page(FILE *out, const parts *p)
{
    static const struct {
        const char *comment;
        void (*put)(FILE *out, const parts *p);
    } places[] = {{"<!-- title -->", put_title},
                  {"<!-- style -->", put_style},
                  {"<!-- data -->", put_data},
                  {"<!-- script -->", put_script}};
    const char *at = (const char *)view_frame, *next;
    for (; (next = strstr(at, "<!-- ")); at = next) {
        fwrite(at, 1, (size_t)(next - at), out);
        size_t which = 0, length = 1;
        while (which < 4 && strncmp(next, places[which].comment, strlen(places[which].comment)) != 0) which++;
        if (which < 4) {
            places[which].put(out, p);
            length = strlen(places[which].comment);
        } else {
            fputc('<', out);
        }
        next += length;
    }
    fputs(at, out);
}

bool view_page_write(const char *path, const char *title, const char *data, size_t size, size_t *bytes, char *error,
                     size_t error_size)
{
    parts p = {title, data, size};
    char *page = NULL;
    FILE *out = open_memstream(&page, bytes);
    if (out) put_page(out, &p);
    bool ok = out && !ferror(out);
    ok = out && fclose(out) == 0 && ok;
    if (!ok) snprintf(error, error_size, "%s: no memory for the page", path);
    if (ok) {
        replacement to;
        replacement_begin(&to, path, error, error_size);
        replacement_put(&to, page, *bytes);
        ok = replacement_end(&to);
    }
    free(page);
    return ok;
}
