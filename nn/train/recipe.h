/* All options of a Vision Transformer and its training, as a struct and as text:
 *
 *     nn_recipe r = nn_recipe_default();
 *     if (!nn_recipe_apply(&r, "patch=7,width=32,epochs=3,lr=2e-3", why, sizeof why)) puts(why);
 *     puts(nn_recipe_write(text, &r));
 *
 * The text form is used on the command line, in presets and in checkpoints. It has every key and is read back to the
 * same bits. Two recipes with the same text give the same model on the same data. */
#ifndef NN_TRAIN_RECIPE_H
#define NN_TRAIN_RECIPE_H

#include "data/augment.h"
#include "data/mnist.h"
#include "train/trainer.h"

typedef struct nn_recipe {
    nn_description model; /* image size, mean and deviation come from the data */
    nn_trainer_options training;
    nn_augment_options augment;
} nn_recipe;

enum {
    NN_RECIPE_HELD_OUT = -1,     /* training.held_out before nn_recipe_fit: a twelfth of the images, 5000 for MNIST */
    NN_RECIPE_WORD_MAX = 48,     /* bytes of a key or a value, including the NUL */
    NN_RECIPE_TEXT_MAX = 1 << 11 /* bytes of the whole text */
};

nn_recipe nn_recipe_default(void);

/* Sets the options that depend on the data: image size, mean, deviation and the number of held-out images. */
void nn_recipe_fit(nn_recipe *r, const nn_mnist *set);

/* Key n, from 0, or NULL after the last; its meaning, in a few words; whether its values are words rather than numbers;
 * the index of a key by name, or -1. */
const char *nn_recipe_key(int n);
const char *nn_recipe_meaning(int n);
bool nn_recipe_is_word(int n);
int nn_recipe_find(const char *key);

/* The value of a key as text. Returns `out`. */
const char *nn_recipe_get(char out[NN_RECIPE_WORD_MAX], const nn_recipe *r, int n);

/* If `text` is not a valid value, returns false, with the expected value in `should`, and changes nothing. */
bool nn_recipe_set(nn_recipe *r, int n, const char *text, char *should, size_t should_size);

/* Reads the next KEY=VALUE of a comma-separated list; without '=' the value is "". Returns false at the end. Words
 * longer than any valid one are truncated. */
bool nn_recipe_next(const char **text, char key[NN_RECIPE_WORD_MAX], char value[NN_RECIPE_WORD_MAX]);

/* Applies such a list to a recipe. Returns false on error, with one line in `why`; the entries before the error are
 * applied. */
bool nn_recipe_apply(nn_recipe *r, const char *text, char *why, size_t why_size);

/* Writes all keys and values as such a list. Returns `out`. */
const char *nn_recipe_write(char out[NN_RECIPE_TEXT_MAX], const nn_recipe *r);

#endif
