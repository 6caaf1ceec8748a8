/* SPDX-License-Identifier: Apache-2.0 */
/* What torchtitan's layers keep and run again, beside a plain list of the ops that each issues,
 * over which its policies are run as they are written (distributed/activation_checkpoint.py). */
#include "config.h"

#include "tests/unit/test-lower-case.h"

#define SEQ 512
#define LATENT \
  "family=deepseek_v3,layers=4,dense_layers=1,hidden=256,ffn=384,heads=4,kv_heads=4,head_dim=96," \
  "kv_lora=64,nope_dim=64,rope_dim=32,v_dim=64,vocab=256,max_seq=512,experts=16,topk=4," \
  "router_groups=0,router_group_topk=0,expert_ffn=128,shared_ffn=192,mtp=0,q_lora="
#define QWEN \
  "family=qwen3_moe,layers=3,hidden=256,ffn=384,heads=4,kv_heads=2,head_dim=64,vocab=256," \
  "max_seq=512,experts=16,topk=4,expert_ffn=128"
#define GPT_OSS \
  "family=gpt_oss,layers=3,hidden=256,ffn=384,heads=4,kv_heads=2,head_dim=64,vocab=256," \
  "max_seq=512,experts=16,topk=4,expert_ffn=128"

typedef enum
{
  MM,
  ADDMM, /* a product with a bias */
  GATE,  /* the router's product, whose shape is recomputed whatever it counts */
  ATTENTION,
  ALL_TO_ALL,
  GROUPED_MM,
} Kind;

typedef struct
{
  Kind kind;
  gint64 bytes;    /* of its output */
  gboolean hidden; /* within a part that is compiled by itself */
} Op;

typedef struct
{
  Op op[32];
  guint n;
} Ops;

static void
add (Ops *ops, Kind kind, gint64 bytes)
{
  ops->op[ops->n++] = (Op){ kind, bytes, FALSE };
}

/* The ops of a layer that any policy could keep, in torchtitan's order, in bf16. */
static void
list_ops (const TestCase *c, gboolean has_experts, gboolean joins, Ops *out)
{
  const PlanModel *m = c->model;
  const gint64 rows = SEQ * m->topk, ep = c->of->plan.value[PLAN_EP];
  const Kind product = m->expert_bias ? ADDMM : MM;
  out->n = 0;
  if (m->kv_lora > 0)
    {
      if (m->q_lora > 0)
        add (out, MM, 2 * SEQ * m->q_lora);
      add (out, MM, 2 * SEQ * m->heads * (m->nope_dim + m->rope_dim));
      add (out, MM, 2 * SEQ * (m->kv_lora + m->rope_dim));
      add (out, MM, 2 * SEQ * m->heads * (m->nope_dim + m->v_dim));
      add (out, ATTENTION, SEQ * m->heads * (2 * m->v_dim + 4));
    }
  else
    {
      if (joins)
        add (out, product, 2 * SEQ * (m->heads + 2 * m->kv_heads) * m->head_dim);
      for (guint i = 0; i < 3 && !joins; i++)
        add (out, product, 2 * SEQ * (i == 0 ? m->heads : m->kv_heads) * m->head_dim);
      add (out, ATTENTION, SEQ * m->heads * (2 * m->head_dim + 4));
    }
  add (out, product, 2 * SEQ * m->hidden);
  if (has_experts)
    {
      add (out, m->expert_bias ? ADDMM : GATE, 4 * SEQ * m->experts);
      if (ep > 1)
        add (out, ALL_TO_ALL, 2 * rows * m->hidden);
      for (guint i = 0; i < 3; i++)
        add (out, GROUPED_MM, 2 * rows * (i < 2 ? m->expert_ffn : m->hidden));
      if (ep > 1)
        add (out, ALL_TO_ALL, 2 * rows * m->hidden);
    }
  const gint64 ffn = has_experts ? m->shared_ffn : m->ffn;
  for (guint i = 0; i < 3 && ffn > 0; i++)
    add (out, MM, 2 * SEQ * (i < 2 ? ffn : m->hidden));
}

/* What the policy keeps of these. `date` is that of the code. */
static gint64
kept_of (const TestCase *c, const Ops *ops, gboolean has_experts, gint64 date)
{
  const PlanModel *m = c->model;
  const gboolean compiles = c->of->plan.value[PLAN_COMPILE] == PLAN_COMPILE_ON;
  const gboolean is_seen = !compiles || !has_experts || date >= 20260414;
  const gint64 rows_since = m->kv_lora > 0 || m->sinks ? 20250906 : 20260323;
  gint64 bytes = 0;
  guint products = 0;
  for (guint i = 0; i < ops->n; i++)
    {
      const Op *op = &ops->op[i];
      /* A compiler leaves out the last product, whose result nobody reads again. */
      const gboolean is_unread = compiles && i + 1 == ops->n && op->kind == MM;
      gboolean is_kept = FALSE;
      if (op->kind == MM)
        is_kept = ++products % 2 == 1 && is_seen && !is_unread;
      else if (op->kind == ADDMM)
        is_kept = is_seen && date >= 20260323;
      else if (op->kind == ALL_TO_ALL)
        is_kept = date >= rows_since;
      else
        is_kept = op->kind == ATTENTION;
      bytes += is_kept ? op->bytes : 0;
    }
  return bytes;
}

/* Bytes of activations that are there when the first loss is computed. */
static gint64
live_at_loss (const TestCase *c)
{
  gint64 bytes = 0;
  PlanCursor cursor;
  plan_cursor_start (&cursor, c->schedule, PLAN_SECTION_STEP);
  for (const PlanOp *op; (op = plan_cursor_next (&cursor));)
    {
      if (plan_op_work (op->kind) == PLAN_WORK_LOSS)
        break;
      if (op->kind != PLAN_OP_ALLOC && op->kind != PLAN_OP_FREE)
        continue;
      const PlanBuffer *buffer = plan_schedule_buffer (c->schedule, (guint)op->refs[0].array);
      const gint64 sign = op->kind == PLAN_OP_ALLOC ? 1 : -1;
      if (buffer->category == PLAN_CATEGORY_ACTIVATIONS)
        bytes += sign * (gint64)plan_dtype_bytes (buffer->dtype, buffer->elements);
    }
  return bytes;
}

static void
init (TestCase *c, const char *model, const char *words)
{
  g_autofree char *all = g_strconcat ("gbs=8 mbs=1 seq=512 ", words, NULL);
  test_case_init (c, model, "dgx-h100:1", all);
}

#define SAC " recompute=selective recompute_modules=op-sac"
static const struct
{
  const char *model, *words;
  gint64 date; /* of the code that the stack stands for */
} kept[] = {
  { LATENT "0", "stack=fsdp2 ep=4", 20260821 },
  { LATENT "96", "stack=fsdp2 ep=1", 20260821 },
  { LATENT "96", "stack=fsdp2 ep=8 compile=on", 20260821 },
  { LATENT "0", "stack=fsdp2@2026-04-13 ep=8 compile=on", 20260413 },
  { LATENT "0", "stack=fsdp2@2025-09-06 ep=2", 20250906 },
  { LATENT "0", "stack=fsdp2@2025-09-05 ep=2", 20250905 },
  { LATENT "96", "stack=fsdp2@2025-08-28 ep=2", 20250828 },
  { QWEN, "stack=fsdp2 ep=4", 20260821 },
  { QWEN, "stack=fsdp2@2026-06-23 ep=4", 20260623 },
  { QWEN, "stack=fsdp2@2026-03-22 ep=4", 20260322 },
  { QWEN, "stack=fsdp2@2026-03-22 ep=4 compile=on", 20260322 },
  { QWEN ",shared_ffn=128", "stack=fsdp2 ep=1", 20260821 },
  { QWEN ",dense_layers=1", "stack=fsdp2 ep=2 compile=on", 20260821 },
  { GPT_OSS, "stack=fsdp2 ep=4", 20260821 },
  { GPT_OSS, "stack=fsdp2@2026-03-22 ep=4", 20260322 },
  { GPT_OSS, "stack=fsdp2@2026-03-22 ep=1", 20260322 },
  { "llama3-8b,layers=3", "stack=fsdp2", 20260821 },
  { "llama3-8b,layers=3", "stack=fsdp2@2026-06-23 compile=on", 20260623 },
};

/* Beside its input, which is kept even where all of a layer is recomputed, a layer keeps what the
 * policy says. */
START_TEST (op_sac_keeps_what_its_policy_says)
{
  g_auto (TestCase) sac = { 0 }, full = { 0 };
  g_autofree char *some = g_strconcat (kept[_i].words, SAC, NULL);
  g_autofree char *none = g_strconcat (kept[_i].words, " recompute=full", NULL);
  gint64 want = 0;
  init (&sac, kept[_i].model, some);
  init (&full, kept[_i].model, none);
  for (gint64 layer = 0; layer < sac.model->layers; layer++)
    {
      const gboolean has_experts
          = plan_model_layer_kind (sac.model, layer, SEQ) & PLAN_LAYER_EXPERTS;
      Ops ops;
      list_ops (&sac, has_experts, kept[_i].date >= 20260624, &ops);
      want += kept_of (&sac, &ops, has_experts, kept[_i].date);
    }
  ck_assert_int_eq (live_at_loss (&sac) - live_at_loss (&full), want);
}
END_TEST

/* A layer of gpt-oss whose activations all stay, tensor by tensor as autograd saves them
 * (models/gpt_oss/model.py and moe.py, models/common/token_dispatcher.py); T tokens, N rows. */
static gint64
saved_by_autograd (const PlanModel *m, gboolean compiles)
{
  const gint64 t = SEQ, n = SEQ * m->topk, h = m->hidden, f = m->expert_ffn;
  const gint64 q = m->heads * m->head_dim, kv = m->kv_heads * m->head_dim;
  const gint64 attention = 2 * t * h + 4 * t              /* the norm's output and statistics */
                           + 2 * t * (q + 2 * kv)         /* of attention: what it read, */
                           + 2 * t * q + 4 * t * m->heads /* what it made, and its logarithms; */
                           + 2 * t * q;                   /* that, weighed by sinks */
  const gint64 router = 2 * t * h + 2 * t * h + 4 * t /* the sum, the norm's output, statistics */
                        + 4 * t * m->experts + t * m->experts;
  const gint64 rows = 2 * 8 * n                        /* indices of tokens and of scores */
                      + 4 * n                          /* scores */
                      + 2 * n * h                      /* what experts read */
                      + 2 * n * 2 * f                  /* the first product with its bias, */
                      + (compiles ? 0 : 2 * n * 4 * f) /* both factors, a sigmoid, their product, */
                      + 2 * n * f                      /* and what the second product reads */
                      + (compiles ? 0 : 4 * n * h);    /* what it made, in fp32 */
  return attention + router + rows;
}

START_TEST (autograd_saves_these_tensors)
{
  const gboolean compiles = _i == 1;
  const char *compile = compiles ? " compile=on" : "";
  g_auto (TestCase) all = { 0 }, full = { 0 };
  g_autofree char *none = g_strconcat ("stack=fsdp2 recompute=none", compile, NULL);
  g_autofree char *again = g_strconcat ("stack=fsdp2 recompute=full", compile, NULL);
  init (&all, GPT_OSS, none);
  init (&full, GPT_OSS, again);
  const gint64 n = SEQ * all.model->topk;
  /* Compiled, the unweighed rows stay in place of fp32 ones. */
  const gint64 want
      = saved_by_autograd (all.model, compiles) + (compiles ? 2 * n * all.model->hidden : 0);
  ck_assert_int_eq (live_at_loss (&all) - live_at_loss (&full), all.model->layers * want);
}
END_TEST

static gint64
count_ops (const TestCase *c, PlanOpKind kind)
{
  PlanCursor cursor;
  gint64 n = 0;
  plan_cursor_start (&cursor, c->schedule, PLAN_SECTION_STEP);
  for (const PlanOp *op; (op = plan_cursor_next (&cursor));)
    n += op->kind == kind;
  return n;
}

/* How often a layer with experts runs products of experts (forwards, backwards and again), sends
 * rows, and makes the host wait for their numbers. */
static const struct
{
  const char *model, *words;
  gint64 products, sends, waits;
} again[] = {
  { LATENT "0", "stack=fsdp2 ep=4 recompute=none", 6, 4, 1 },
  { LATENT "0", "stack=fsdp2 ep=1 recompute=none", 6, 0, 0 },
  { LATENT "0", "stack=fsdp2 ep=4 recompute=full", 8, 6, 2 },
  { LATENT "0", "stack=fsdp2 ep=4" SAC, 8, 4, 1 },
  { LATENT "0", "stack=fsdp2 ep=4 compile=on" SAC, 7, 4, 1 },
  { LATENT "0", "stack=fsdp2@2026-04-13 ep=4 compile=on" SAC, 8, 4, 1 },
  { LATENT "0", "stack=fsdp2@2025-09-05 ep=4" SAC, 8, 6, 2 },
  { LATENT "0", "stack=fsdp2@2025-08-28 ep=4" SAC, 8, 6, 2 },
  { QWEN, "stack=fsdp2@2026-03-23 ep=4" SAC, 8, 4, 1 },
  { QWEN, "stack=fsdp2@2026-03-22 ep=4" SAC, 8, 6, 2 },
};

START_TEST (rows_are_not_sent_again_where_they_are_kept)
{
  g_auto (TestCase) c = { 0 };
  init (&c, again[_i].model, again[_i].words);
  const gint64 layers = c.model->layers - c.model->dense_layers;
  ck_assert_int_eq (count_ops (&c, PLAN_OP_GROUPED_GEMM), layers * again[_i].products);
  ck_assert_int_eq (count_ops (&c, PLAN_OP_ALL_TO_ALL), layers * again[_i].sends);
  ck_assert_int_eq (count_ops (&c, PLAN_OP_SYNC) - 2, layers * again[_i].waits); /* and its own */
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("lower-torch");
  TCase *tcase = tcase_create ("lower-torch");
  tcase_add_loop_test (tcase, op_sac_keeps_what_its_policy_says, 0, G_N_ELEMENTS (kept));
  tcase_add_loop_test (tcase, autograd_saves_these_tensors, 0, 2);
  tcase_add_loop_test (tcase, rows_are_not_sent_again_where_they_are_kept, 0, G_N_ELEMENTS (again));
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
