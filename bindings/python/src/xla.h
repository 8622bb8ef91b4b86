/* Attention as custom calls of XLA. */
#ifndef MHA_PYTHON_XLA_H
#define MHA_PYTHON_XLA_H

/* The threads of later calls; 0: the number of processors. */
void xla_set_threads(int threads);

#endif
