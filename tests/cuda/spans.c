#include "cuda/spans.h"
#include "cuda/gpu.h"
#include "support/numbers.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { APART = 256 };

void spans_add(spans *m, mha_tensor *t)
{
    if (t->rank && t->data && mha_element_count(*t)) m->all[m->count++] = t;
}

static span span_of(mha_tensor t)
{
    char *low = t.data, *high = t.data;
    for (int axis = 0; axis < t.rank; axis++) {
        int64_t bytes = (t.size[axis] - 1) * t.stride[axis] * (int64_t)mha_type_size(t.type);
        if (bytes < 0) low += bytes;
        else high += bytes;
    }
    return (span){low, high + mha_type_size(t.type), NULL};
}

/* Spans that touch become one, so that tensors which share memory still do. */
static void collect(spans *m)
{
    for (int n = 0; n < m->count; n++) {
        span s = span_of(*m->all[n]);
        for (int k = 0; k < m->span_count;) {
            span other = m->spans[k];
            if (s.low > other.high || other.low > s.high) {
                k++;
                continue;
            }
            if (other.low < s.low) s.low = other.low;
            if (other.high > s.high) s.high = other.high;
            m->spans[k] = m->spans[--m->span_count];
            k = 0;
        }
        m->spans[m->span_count++] = s;
    }
}

/* One call at a time: contexts of several threads share that of the GPU. */
static pthread_mutex_t calling = PTHREAD_MUTEX_INITIALIZER;

void spans_to_device(spans *m)
{
    size_t bytes = 0;
    pthread_mutex_lock(&calling);
    gpu_enter();
    collect(m);
    for (int n = 0; n < m->span_count; n++) bytes += (size_t)(m->spans[n].high - m->spans[n].low) + APART;
    m->memory = gpu_make(bytes);
    char *at = m->memory;
    for (int n = 0; n < m->span_count; n++) {
        span *s = &m->spans[n];
        at += ((uintptr_t)s->low - (uintptr_t)at) % 16; /* as aligned as on the host, and no more */
        s->device = at;
        gpu_write(at, s->low, (size_t)(s->high - s->low));
        at += s->high - s->low + APART / 2;
    }
    for (int n = 0; n < m->count; n++)
        for (int k = 0; k < m->span_count; k++) {
            const span *s = &m->spans[k];
            char *data = m->all[n]->data;
            if (data < s->low || data >= s->high) continue;
            m->all[n]->data = s->device + (data - s->low);
            break;
        }
}

void spans_to_host(spans *m)
{
    for (int n = 0; n < m->span_count; n++) {
        size_t bytes = (size_t)(m->spans[n].high - m->spans[n].low);
        char *read = array((int64_t)bytes, 1);
        gpu_read(read, m->spans[n].device, bytes);
        if (memcmp(read, m->spans[n].low, bytes) != 0)
            memcpy(m->spans[n].low, read, bytes); /* inputs may be constants */
        free(read);
    }
    if (!gpu_free(m->memory)) {
        printf("    a kernel wrote behind the memory of a call\n");
        exit(1);
    }
    pthread_mutex_unlock(&calling);
}
