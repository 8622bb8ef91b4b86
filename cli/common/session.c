#include "cli/common/session.h"
#include "cli/common/cli.h"

bool session_open(session *s, const session_from *from)
{
    char error[600];
    *s = (session){.from = from, .ctx = cli_context_of((int)from->threads)};
    if (!s->ctx) return false;
    mha_model_options o = MHA_MODEL_DEFAULTS;
    o.heads = from->heads, o.compute = from->type, o.gaps = from->gaps;
    if (!model_open(&s->model, s->ctx, from->file, &o, error, sizeof error)) return cli_error("%s", error);
    s->about = model_about(s->ctx, s->model);
    return true;
}

bool session_open_data(session *s, bool test_only)
{
    s->data = data_open(s->ctx, s->from->folder, test_only);
    if (!s->data || !data_fits(s->ctx, s->data, s->model, s->from->file)) return false;
    s->set = data_about(s->ctx, s->data);
    return true;
}

void session_close(session *s)
{
    mha_data_free(s->data);
    mha_model_free(s->model);
    mha_context_free(s->ctx);
}
