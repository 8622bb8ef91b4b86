/* What the steps of a program are, for people. */
#ifndef NN_PROGRAM_ABOUT_H
#define NN_PROGRAM_ABOUT_H

#include "program/run.h"

/* The name of a value: that of its kind, with a number if there are several, such as "x3". Returns `out`. */
enum { NN_VALUE_NAME = 32 };
const char *nn_program_value_name(const nn_program *p, int32_t v, char out[NN_VALUE_NAME]);

/* Its shape: "rows x 768". Returns `out`. */
const char *nn_program_shape(const nn_program *p, int32_t v, char out[NN_VALUE_NAME]);

/* The sizes of a call with one sequence of so many tokens on each side, which nobody runs. */
nn_run nn_program_sizes(const nn_program *p, const nn_call *call, const int64_t tokens[2]);

/* Multiplications and additions of a step; bytes that it reads and writes, its weights included. */
double nn_step_operations(const nn_run *r, const nn_step *s);
double nn_step_bytes(const nn_run *r, const nn_step *s);

#endif
