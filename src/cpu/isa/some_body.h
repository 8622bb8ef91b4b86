/* A vector, or the part of it that is left at the end of a row: n is a constant VF in the loop over whole vectors, and what
 * is left behind it. */

static inline vf vf_load_some(const float *p, int64_t n) { return n >= VF ? vf_load(p) : vf_load_part(p, n); }

static inline void vf_store_some(float *p, vf x, int64_t n)
{
    if (n >= VF) vf_store(p, x);
    else vf_store_part(p, x, n);
}
