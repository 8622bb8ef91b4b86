/* Between the measurement of models and its check. */
#ifndef BENCH_MODEL_H
#define BENCH_MODEL_H

#include "bench.h"
#include "train/image_examples.h"
#include "train/trainer.h"
#include "families/vit_file.h"

/* What is measured: a Vision Transformer of the usual size for digits of 28 x 28 pixels. */
nn_description bench_model_config(mha_type type, const nn_mnist *set);

/* Training without anything that a peer would have to imitate: no augmentation, smoothing, clipping or average of the
 * weights, and one learning rate; every epoch is one batch of all images. */
nn_trainer_options bench_model_options(int64_t batch);

/* The largest error of the logits (images,classes) over samples, as a share of the largest of them: against the oracle,
 * for the model `net` has. NAN: no memory for it. */
double bench_logits_error(const nn_model *net, const nn_examples *images, const float *logits);

/* The error of training over a small batch, as a share: of the loss of the first step; and of its gradient, whose norm
 * must be the slope of the oracle's loss along it. NAN: no memory for it. */
double bench_training_error(mha_context *ctx, mha_type type, int64_t batch);

#endif
