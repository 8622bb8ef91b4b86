/* The page of `mha view`: one HTML file with its scripts and its data in it.
 *
 *     nn_buffer data = {0};
 *     nn_buffer_puts(&data, "{\"title\":"), view_string(&data, "vit.safetensors"), ...
 *     if (!view_page_write("page.html", "vit.safetensors", &data, VIEW_NO_ENGINE, &bytes, error, sizeof error)) puts(error);
 *
 * The template is web/page.html, whose comments mark the insertion points. Its policy lets the page run its own script, which is
 * known by its hash, and WebAssembly; nothing else runs, and nothing is fetched or sent. The data are one JSON object inside a
 * <script>, so it must not contain '<': all text goes through view_string. */
#ifndef VIEW_PAGE_H
#define VIEW_PAGE_H

#include "io/buffer.h"

/* The files of web/, embedded by the build (cmake/embed.cmake). Each is followed by a 0, which is not counted. */
extern const unsigned char view_frame[], view_style[], view_script[];
extern const size_t view_frame_size, view_style_size, view_script_size;
extern const char view_script_hash[]; /* SHA-256, in hexadecimal digits */

/* The library as WebAssembly (web/engine), gzipped, for pages of pictures and for those of texts; of size 0 where the build could
 * not make it (cmake/wasm.cmake). */
extern const unsigned char view_engine[], view_text_engine[];
extern const size_t view_engine_size, view_text_engine_size;

/* Which of them a page carries. */
typedef enum view_module { VIEW_NO_ENGINE, VIEW_ENGINE, VIEW_TEXT_ENGINE } view_module;

/* A JSON string, with its quotes and without '<'. */
void view_string(nn_buffer *out, const char *text);

/* The same of a name that the page shows: control characters and those that would change the direction of text are spelled out,
 * such as \u202e. */
void view_name(nn_buffer *out, const char *text);

/* A JSON number with nine digits; null if it is not finite. */
void view_number(nn_buffer *out, double x);

/* A JSON string: the bytes in base64. */
void view_base64(nn_buffer *out, const void *bytes, size_t size);

/* The last component of a path: a page may be shared, and should not reveal folder names. */
const char *view_title(const char *path);

/* Writes the page atomically, with the engine for a model that it runs, and its size to *bytes. Returns false on error, also if
 * `data` has failed, with one line in `error`. */
bool view_page_write(const char *path, const char *title, const nn_buffer *data, view_module engine, size_t *bytes,
                     char *error, size_t error_size);

#endif
