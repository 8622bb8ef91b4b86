/* A GPU for tests: memory with guards, streams and graphs over the driver, which is opened at run time. Everything exits
 * with a message if the driver reports an error. */
#ifndef GPU_H
#define GPU_H

#include <stdbool.h>
#include <stddef.h>

/* Whether "cuda" can be used; otherwise why not. Opens the driver, whose context becomes that of the calling thread. */
bool gpu_open(char *why, size_t size);

/* The same for another thread, which has none until then. */
void gpu_enter(void);

/* Device memory of so many bytes, all 0xFF (NaN in every float type), with a guard behind it. gpu_free returns whether
 * the guard is untouched. */
void *gpu_make(size_t bytes);
bool gpu_free(void *memory);
void gpu_write(void *to, const void *from, size_t bytes);
void gpu_read(void *to, const void *from, size_t bytes);
void gpu_poison(void *to, size_t bytes); /* 0xFF */

/* Streams that do not wait for the default stream. */
void *gpu_stream_make(void);
void gpu_stream_free(void *stream);
void gpu_wait(void);

/* Captures what is put into a stream as a graph, which is then replayed into the stream. */
void gpu_capture_begin(void *stream);
void *gpu_capture_end(void *stream);
void gpu_replay(void *graph, void *stream);
void gpu_graph_free(void *graph);

/* The driver's context that is current; and setting it. */
void *gpu_current(void);
void gpu_set_current(void *context);

/* Free bytes of the GPU's memory; taking all of it, but for less than 2 MiB; and giving that back. */
size_t gpu_room(void);
void gpu_take_all(void);
void gpu_give_back(void);

#endif
