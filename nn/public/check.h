/* What all calls of mha_model.h and mha_text.h have in common: messages in the context, and arguments that must be given. */
#ifndef NN_PUBLIC_CHECK_H
#define NN_PUBLIC_CHECK_H

#include <locale.h>
#include <mha.h>

/* Leaves a message, made as printf does, and returns the status. */
__attribute__((format(printf, 3, 4))) mha_status nn_public_fail(mha_context *ctx, mha_status status, const char *format,
                                                                ...);

/* MHA_BAD_ARGUMENT if the pointer is NULL. */
mha_status nn_public_need(mha_context *ctx, const void *pointer, const char *name);

/* Defaults of an options struct, whose first member is its size: `size` bytes of `all`, of `all_size`. */
void nn_public_defaults(void *options, size_t size, const void *all, size_t all_size);

/* Copies the caller's options over `own`, which holds the defaults; NULL changes nothing. A size of 0, or beyond `own`,
 * is an error. `defaults` is the name of the macro, for the message. */
mha_status nn_public_options(mha_context *ctx, void *own, size_t own_size, const void *given, const char *defaults);

/* Whether the caller's struct, whose first member is its size, has a legal one; `type` is its name. The second call also
 * copies what it has room for. */
mha_status nn_public_takes(mha_context *ctx, const void *info, size_t all_size, const char *type);
mha_status nn_public_give(mha_context *ctx, void *info, const void *all, size_t all_size, const char *type);

/* MHA_NO_DEVICE unless the context is one of the CPU. */
mha_status nn_public_cpu(mha_context *ctx);

/* Whether a tensor that was given has these sizes, called `letters`, and a float type; all zero is right, too. */
mha_status nn_public_tensor(mha_context *ctx, const mha_tensor *t, const char *name, const char *letters, int rank,
                            const int64_t size[4]);

/* Numbers in files, recipes and descriptions are text with a decimal point, whatever locale the program has chosen. From
 * here to the end of the block, the calling thread has the C locale. Callbacks of the program run outside such blocks. */
#define NN_PUBLIC_C_LOCALE \
    __attribute__((cleanup(nn_public_locale_restore), unused)) locale_t before = nn_public_locale_set()
locale_t nn_public_locale_set(void); /* returns the locale that it replaces; 0 if there is none to restore */
void nn_public_locale_restore(locale_t *before);

/* Leaves the error of a call inside nn that has no status: MHA_NO_MEMORY if that is what it says, else MHA_BAD_ARGUMENT. */
mha_status nn_public_reason(mha_context *ctx, const char *error);

#endif
