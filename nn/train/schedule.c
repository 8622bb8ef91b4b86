/* Half a cosine falls from 1 to 0 as (1 + cos(pi x)) / 2 = cos(pi x / 2)^2, 0 <= x <= 1, for which 12 terms of the
 * Taylor series are enough. The C library's cosine is not used: it differs in the last bit between systems, which would
 * change the training run. */
#include "train/schedule.h"

enum { TERMS = 12 }; /* the truncation error is below (pi/2)^24 / 24! = 8e-20 */

static double falling(double x)
{
    double y = 1.5707963267948966 * x, term = 1, sum = 1;
    if (x >= 1) return 0;
    for (int k = 1; k < TERMS; k++) {
        term = -term * y * y / (double)((2 * k - 1) * (2 * k));
        sum += term;
    }
    return sum * sum;
}

static double between(double from, double to, double x) { return to + (from - to) * falling(x); }

float nn_schedule_rate(const nn_schedule *plan, int64_t step)
{
    int64_t top = plan->warmup > 0 ? plan->warmup - 1 : 0; /* the step with the peak rate */
    int64_t last = plan->steps > 0 ? plan->steps - 1 : 0;
    if (plan->kind != NN_SCHEDULE_CONSTANT && step > last) step = last;
    if (step < 0) step = 0;
    if (step < top && plan->kind == NN_SCHEDULE_ONE_CYCLE)
        return (float)between(plan->start, plan->peak, (double)step / (double)top);
    if (step < top) return (float)(plan->peak * (double)(step + 1) / (double)plan->warmup);
    if (step == top || plan->kind == NN_SCHEDULE_CONSTANT) return (float)plan->peak;
    return (float)between(plan->peak, plan->floor, (double)(step - top) / (double)(last - top));
}
