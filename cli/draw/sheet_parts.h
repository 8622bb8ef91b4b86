/* What the files behind sheet.h share. */
#ifndef SHEET_PARTS_H
#define SHEET_PARTS_H

#include "io/buffer.h"
#include "inspect/heads.h"
#include "cli/draw/sheet.h"

/* The steps of the colour scale, of which 0 is not painted, and of a picture's ink. */
enum { SHEET_STEPS = 16, SHEET_INK = 8 };

/* Text as HTML has it. */
void sheet_text(nn_buffer *out, const char *text);

/* The style sheet, between its tags. */
void sheet_style(nn_buffer *out);

/* Loss and accuracy, one chart each; nothing without points. */
void sheet_curves(nn_buffer *out, const sheet *s);

/* Image n (from 0) and what the model made of it. */
void sheet_digit(nn_buffer *out, const sheet *s, int64_t n, const nn_vit_config *config, const nn_heads_view *view);

#endif
