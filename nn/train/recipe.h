/* How a Vision Transformer is shaped and trained, all of it, as numbers and as text:
 *
 *     nn_recipe r = nn_recipe_default();
 *     if (!nn_recipe_apply(&r, "patch=7,width=32,epochs=3,lr=2e-3", why, sizeof why)) puts(why);
 *     puts(nn_recipe_write(text, &r));
 *
 * Text is what people type, what presets are written in and what a checkpoint keeps. It has every key, and reads back to
 * the same bits. Two recipes with the same text, over the same data, end in the same model. */
#ifndef NN_TRAIN_RECIPE_H
#define NN_TRAIN_RECIPE_H

#include "data/augment.h"
#include "data/mnist.h"
#include "train/trainer.h"

typedef struct nn_recipe {
    nn_description model; /* the size of images, their mean and deviation are those of the data */
    nn_trainer_options training;
    nn_augment_options augment;
} nn_recipe;

enum {
    NN_RECIPE_HELD_OUT = -1, /* of training.held_out, until nn_recipe_fit: a twelfth of the images, 5000 of MNIST's */
    NN_RECIPE_WORD_MAX = 48, /* bytes of a key or of a value, with the NUL */
    NN_RECIPE_TEXT_MAX = 1 << 11 /* of all of them */
};

nn_recipe nn_recipe_default(void);

/* What depends on the data: the size of the images, their mean and deviation, how many are held out. */
void nn_recipe_fit(nn_recipe *r, const nn_mnist *set);

/* The keys, from 0 until NULL; what one means, in a few words; whether its values are words rather than numbers; which
 * one has that name, -1 if none. */
const char *nn_recipe_key(int n);
const char *nn_recipe_meaning(int n);
bool nn_recipe_is_word(int n);
int nn_recipe_find(const char *key);

/* The value of a key as text. Returns `out`. */
const char *nn_recipe_get(char out[NN_RECIPE_WORD_MAX], const nn_recipe *r, int n);

/* False, with what the value of that key should be in `should`, and nothing changed, if `text` is none. */
bool nn_recipe_set(nn_recipe *r, int n, const char *text, char *should, size_t should_size);

/* Takes the next KEY=VALUE off a list with commas; without '=' the value is "". False at its end. Words are cut where
 * they are longer than any that is right. */
bool nn_recipe_next(const char **text, char key[NN_RECIPE_WORD_MAX], char value[NN_RECIPE_WORD_MAX]);

/* A list, onto a recipe. False, with one line in `why`, and some of it done, if something in it is wrong. */
bool nn_recipe_apply(nn_recipe *r, const char *text, char *why, size_t why_size);

/* All keys and values as such a list. Returns `out`. */
const char *nn_recipe_write(char out[NN_RECIPE_TEXT_MAX], const nn_recipe *r);

#endif
