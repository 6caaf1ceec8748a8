/* SPDX-License-Identifier: Apache-2.0 */
/* Models whose layers differ (experts, windows, latent attention): the ops, bytes and FLOPs of
 * their schedules equal those that the tests count from the model's dimensions alone. */
#include "config.h"

#include "planner/layout/layout.h"
#include "planner/lower/lower.h"
#include "planner/plan/stack.h"
#include "tests/case.h"
#include "tests/prop/count-kinds.h"
#include "tests/prop/random.h"
#include "tests/share.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void
case_init (TestCase *c, int seed)
{
  c->model = random_expert_model ((guint)seed);
  c->cluster = plan_cluster_new (seed % 7 == 6   ? "dgx-b200:2"
                                 : seed % 5 == 4 ? "h100-80gb:2"
                                 : seed % 3      ? "dgx-h100:1"
                                                 : "dgx-h100:2",
                                 NULL);
  c->of = random_expert_case ((guint)seed, c->model, c->cluster);
  c->schedule = test_lower (c->of, 0);
}

START_TEST (schedules_pass_their_check)
{
  TestCase c;
  g_autoptr (GError) error = NULL;
  case_init (&c, _i);
  g_autofree char *plan = plan_print (&c.of->plan);
  g_autofree char *model = plan_model_print (c.model);
  ck_assert_msg (plan_schedule_check (c.schedule, &error), "seed %d: %s\n%s\n%s", _i,
                 error ? error->message : "", model, plan);
  test_case_clear (&c);
}
END_TEST

/* Elements that this rank sends in a step's exchanges among groups of that name; `ranks` is how
 * many times the elements of one op count. */
static double
elements_given (const TestCase *c, const char *group, double ranks)
{
  PlanCursor cursor;
  double sum = 0;
  plan_cursor_start (&cursor, c->schedule, PLAN_SECTION_STEP);
  for (const PlanOp *op; (op = plan_cursor_next (&cursor));)
    if ((op->stream == PLAN_STREAM_TENSOR || op->stream == PLAN_STREAM_EXPERTS) && op->group >= 0
        && strcmp (plan_schedule_group (c->schedule, (guint)op->group)->name, group) == 0)
      sum += (double)op->dims[0] * ranks;
  return sum;
}

/* Columns of the rows that experts read. */
static gint64
width_of (const PlanModel *model)
{
  return model->expert_hidden > 0 ? model->expert_hidden : model->hidden;
}

/* With moe_dispatcher=allgather, a layer gathers tokens, masks and probabilities, and sums rows;
 * the backward pass gathers gradients of rows, and sums those of tokens and probabilities. */
static void
check_gathered_tokens (const TestCase *c, int seed, double tokens, gboolean again)
{
  const gint64 *value = c->of->plan.value;
  const double width = (double)width_of (c->model), experts = (double)c->model->experts;
  const double joined = elements_given (c, "expert_all", 1);
  const double there = tokens * (width + 2 * experts);
  const double once = there + tokens * (3 * width + experts) + (again ? there : 0);
  const double most = once + (again ? tokens * width : 0);
  const double micro_batches
      = (double)(value[PLAN_GBS] / value[PLAN_MBS]
                 / (plan_cluster_devices (c->cluster) / value[PLAN_TP] / value[PLAN_CP]));
  const double layers
      = value[PLAN_EP] * value[PLAN_ETP] > 1 ? (double)count_moe (c->model) * micro_batches : 0;
  ck_assert_msg (joined == layers * once || joined == layers * most,
                 "seed %d: %.0f elements gathered, not %.0f or %.0f", seed, joined, layers * once,
                 layers * most);
}

/* How many of the `wanted` rows experts compute, if their capacity is limited. Experts that are
 * padded to their capacity compute all of it. */
static double
rows_with_room (const TestCase *c, gint64 tokens, double wanted)
{
  const gint64 *value = c->of->plan.value;
  const gint64 n = tokens * c->model->topk * value[PLAN_MOE_CAPACITY];
  const gint64 parts = c->model->experts * 1000000;
  const double room = (double)((n + parts - 1) / parts * c->model->experts);
  if (value[PLAN_MOE_PAD_TO_CAPACITY] == PLAN_MOE_PAD_TO_CAPACITY_ON)
    return room;
  return value[PLAN_MOE_CAPACITY] > 0 ? MIN (room, wanted) : wanted;
}

/* Whether layers with experts send their rows again when they are recomputed: op by op they are
 * kept since 2025-09-06, in Qwen3's layers since 2026-03-23 alone. */
static gboolean
sends_again (const TestCase *c)
{
  const gint64 *value = c->of->plan.value;
  const gint64 modules = value[PLAN_RECOMPUTE_MODULES];
  const gint64 date = value[PLAN_STACK] / PLAN_STACK_BASE;
  const gboolean is_qwen = c->model->kv_lora == 0 && !c->model->sinks && !c->model->scores_on_input;
  if (value[PLAN_RECOMPUTE] != PLAN_RECOMPUTE_SELECTIVE)
    return FALSE;
  return modules >> PLAN_RECOMPUTE_MODULES_MOE & 1
         || (modules >> PLAN_RECOMPUTE_MODULES_OP_SAC & 1 && date > 0
             && date < (is_qwen ? 20260323 : 20250906));
}

/* Rows and their probabilities are sent to the experts and rows come back, and likewise gradients;
 * on fsdp2 probabilities stay, and weigh the rows that come back. Where the layer is recomputed
 * there are up to three exchanges more. Ranks that
 * split experts among them (expert tensor parallelism) exchange as many elements by gathers and
 * sums. */
START_TEST (tokens_go_to_their_experts_and_back)
{
  TestCase c;
  case_init (&c, _i);
  const gint64 *value = c.of->plan.value;
  const gint64 tokens = value[PLAN_MBS] * value[PLAN_SEQ] / value[PLAN_CP] / value[PLAN_TP];
  const double ep = (double)value[PLAN_EP], width = (double)width_of (c.model);
  /* Each rank is sent as many rows as the fullest one, which gets all rows at most. */
  const double all = (double)c.model->experts / (double)c.model->topk;
  const double fullest = MIN ((double)value[PLAN_MOE_IMBALANCE] / 1e6, MIN (ep, all));
  const double wanted = ep * ceil ((double)(tokens * c.model->topk) * fullest / ep);
  const double rows = rows_with_room (&c, tokens, wanted);
  const gint64 micro_batches
      = value[PLAN_GBS] / value[PLAN_MBS]
        / (plan_cluster_devices (c.cluster) / value[PLAN_TP] / value[PLAN_CP]);
  const gboolean again = sends_again (&c);
  const double sent_probs
      = c.of->stack->id == PLAN_STACK_FSDP2 && !c.model->scores_on_input ? 0 : 1;
  if (value[PLAN_RECOMPUTE] != PLAN_RECOMPUTE_FULL
      && value[PLAN_MOE_DISPATCHER] == PLAN_MOE_DISPATCHER_ALLGATHER)
    check_gathered_tokens (&c, _i, (double)tokens, again);
  if (value[PLAN_RECOMPUTE] == PLAN_RECOMPUTE_FULL
      || value[PLAN_MOE_DISPATCHER] != PLAN_MOE_DISPATCHER_ALLTOALL)
    {
      test_case_clear (&c);
      return;
    }
  const double sent = elements_given (&c, "expert", ep);
  const double joined = elements_given (&c, "expert_tensor", 1);
  const double once
      = rows * (4 * width + 2 * sent_probs) + (again ? rows * (width + sent_probs) : 0);
  /* The exchange that brings rows back is recomputed only where an op reads its output. */
  const double most = once + (again ? rows * width : 0);
  const double all_layers = (double)(count_moe (c.model) * micro_batches);
  const double layers = value[PLAN_EP] > 1 ? all_layers : 0;
  const double split_layers = value[PLAN_ETP] > 1 ? all_layers : 0;
  ck_assert_msg (sent == layers * once || sent == layers * most,
                 "seed %d: %.0f elements, not %.0f or %.0f", _i, sent, layers * once,
                 layers * most);
  ck_assert_msg (joined == split_layers * once || joined == split_layers * most,
                 "seed %d: %.0f elements among parts, not %.0f or %.0f", _i, joined,
                 split_layers * once, split_layers * most);
  test_case_clear (&c);
}
END_TEST

/* How often the host waits in a step to learn how many rows each expert gets, beyond the waits of a
 * plan in which all experts get equally many. */
static const struct
{
  const char *words;
  gint64 waits; /* in a layer with experts */
} waits_of[] = {
  { "ep=2", 1 },
  { "ep=1", 1 },
  { "ep=2 etp=2", 1 },
  { "ep=2 moe_capacity=1", 1 },
  { "ep=1 moe_capacity=1", 1 },
  { "ep=2 moe_capacity=2 moe_pad_to_capacity=on", 0 },
  { "ep=2 moe_dispatcher=hybridep", 1 },
  { "ep=2 moe_dispatcher=hybridep moe_capacity=1", 1 },
  { "ep=2 moe_dispatcher=hybridep moe_capacity=1 moe_pad_to_capacity=on", 0 },
  { "ep=2 moe_dispatcher=deepep moe_capacity=1", 1 },
  { "ep=2 ep_overlap=on", 1 },
  { "ep=2 ep_overlap=on moe_capacity=1 moe_pad_to_capacity=on", 0 },
  { "ep=2 moe_dispatcher=deepep ep_overlap=on ep_delay_wgrad=on", 1 },
  { "ep=2 moe_dispatcher=allgather", 2 },
  { "ep=1 moe_permute_fusion=off", 1 },
  { "ep=2 moe_permute_fusion=off", 1 },
  { "ep=1 moe_capacity=1 moe_permute_fusion=off", 1 },
  { "ep=2 moe_dispatcher=deepep moe_permute_fusion=off", 1 },
  { "ep=2 moe_dispatcher=allgather moe_permute_fusion=off", 2 },
  { "ep=2 moe_dispatcher=allgather moe_capacity=1 moe_pad_to_capacity=on", 2 },
  { "ep=2 stack=native moe_imbalance=2", 1 },
  { "ep=2 etp=2 stack=native moe_imbalance=2", 1 },
  { "ep=1 etp=2 stack=native", 1 },
  { "ep=1 stack=native moe_capacity=1 moe_pad_to_capacity=on", 0 },
  { "ep=2 stack=native moe_capacity=1 moe_pad_to_capacity=on", 0 },
};

static gint64
host_waits (const PlanModel *model, const PlanCluster *cluster, const char *words)
{
  g_autofree char *all
      = g_strconcat ("gbs=16 mbs=1 seq=256 stack=megatron strategy=optim ", words, NULL);
  g_autoptr (PlanCase) of = test_case (model, cluster, all);
  g_autoptr (PlanSchedule) schedule = test_lower (of, 0);
  PlanCursor cursor;
  gint64 n = 0;
  plan_cursor_start (&cursor, schedule, PLAN_SECTION_STEP);
  for (const PlanOp *op; (op = plan_cursor_next (&cursor));)
    n += op->kind == PLAN_OP_SYNC;
  return n;
}

START_TEST (host_waits_for_rows_it_does_not_know)
{
  g_autoptr (PlanModel) model = plan_model_new ("qwen3-30b-a3b,layers=3", NULL);
  g_autoptr (PlanCluster) cluster = plan_cluster_new ("dgx-h100:1", NULL);
  const gint64 micro_batches = 2;
  const char *stack = strstr (waits_of[_i].words, "native") ? "native" : "megatron";
  g_autofree char *padded
      = g_strdup_printf ("ep=2 stack=%s moe_capacity=1 moe_pad_to_capacity=on", stack);
  const gint64 known = host_waits (model, cluster, padded);
  const gint64 waits = host_waits (model, cluster, waits_of[_i].words) - known;
  ck_assert_msg (waits == waits_of[_i].waits * model->layers * micro_batches, "%s: %d waits",
                 waits_of[_i].words, (int)waits);
}
END_TEST

/* Rows of experts moved by one op after the other (moe_permute_fusion=off), against rows moved by
 * one fused op with a map. In a layer and micro batch of the model below a rank has 128 tokens of
 * 64 elements, each of which chooses 4 of 16 experts. */
#define TOKENS 128
#define EXPERTS 16
#define CHOSEN 4
#define WIDTH 64
static const struct
{
  const char *words;
  gint64 rows;   /* rows that this rank's experts get */
  gint64 of;     /* tokens among which they are selected */
  gint64 here;   /* experts for which they are selected */
  gint64 chosen; /* times that probabilities are selected, and added back */
  gint64 joins;  /* joins of pieces on the way to experts and back */
  gint64 kept;   /* bytes kept for the backward pass */
  gint64 mapped; /* bytes that the fused op's maps keep in their place */
} moved[] = {
  { "ep=2", 512, TOKENS, EXPERTS, 1, 2, 8 * (512 + TOKENS * EXPERTS),
    4 * (TOKENS * (2 * EXPERTS + 1) + 2 * 512) },
  { "ep=1", 512, TOKENS, EXPERTS, 1, 2, 8 * (512 + TOKENS * EXPERTS),
    4 * (TOKENS * (2 * EXPERTS + 1) + 2 * 512) },
  { "ep=2 moe_capacity=1.5 moe_pad_to_capacity=on", 768, TOKENS, EXPERTS, 1, 0, 8 * (768 + 768),
    4 * TOKENS *(2 * EXPERTS + 1) },
  { "ep=2 moe_dispatcher=allgather", 512, 2 * TOKENS, EXPERTS / 2, 1, 0, 8 * 512,
    4 * 2 * TOKENS *(EXPERTS + 1) },
  { "ep=2 moe_dispatcher=hybridep", 0, TOKENS, EXPERTS, 0, 0, 0, 0 },
};

typedef struct
{
  double kept; /* bytes of activations once the first forward pass is over */
  double selected, added, joined, sorted;
} Moves;

static void
count_moves (const PlanModel *model, const PlanCluster *cluster, const char *words,
             const char *fusion, Moves *out)
{
  g_autofree char *all = g_strconcat ("gbs=16 mbs=1 seq=128 stack=megatron strategy=optim "
                                      "moe_permute_fusion=",
                                      fusion, " ", words, NULL);
  g_autoptr (PlanCase) of = test_case (model, cluster, all);
  g_autoptr (PlanSchedule) schedule = test_lower (of, 0);
  PlanCursor cursor;
  gboolean is_over = FALSE;
  memset (out, 0, sizeof *out);
  plan_cursor_start (&cursor, schedule, PLAN_SECTION_STEP);
  for (const PlanOp *op; (op = plan_cursor_next (&cursor));)
    {
      const PlanBuffer *buffer = op->refs[0].array < 0
                                     ? NULL
                                     : plan_schedule_buffer (schedule, (guint)op->refs[0].array);
      const double rows = (double)op->dims[0];
      is_over |= plan_op_work (op->kind) == PLAN_WORK_LOSS;
      if (!is_over && buffer && buffer->category == PLAN_CATEGORY_ACTIVATIONS)
        out->kept += (op->kind == PLAN_OP_ALLOC  ? 1.0
                      : op->kind == PLAN_OP_FREE ? -1.0
                                                 : 0)
                     * (double)plan_dtype_bytes (buffer->dtype, buffer->elements);
      out->selected += op->kind == PLAN_OP_INDEX_ROWS ? rows * (double)op->dims[1] : 0;
      out->added += op->kind == PLAN_OP_ADD_ROWS ? rows * (double)op->dims[1] : 0;
      out->joined += op->kind == PLAN_OP_JOIN_ROWS ? rows : 0;
      out->sorted += op->kind == PLAN_OP_SORT ? rows : 0;
    }
}

/* Forwards, tokens are selected into rows and rows are added up into tokens; backwards, gradients
 * of tokens are selected and those of rows added up. */
START_TEST (rows_are_moved_op_by_op)
{
  g_autoptr (PlanModel) model
      = plan_model_new ("family=qwen3_moe,layers=3,hidden=64,ffn=64,heads=4,kv_heads=2,"
                        "head_dim=16,vocab=256,max_seq=256,experts=16,topk=4,expert_ffn=32",
                        NULL);
  g_autoptr (PlanCluster) cluster = plan_cluster_new ("dgx-h100:1", NULL);
  const double rows = (double)moved[_i].rows, layers = 3, micro_batches = 2;
  const double times = layers * micro_batches, chosen = rows * (double)moved[_i].chosen;
  const gboolean sorts_probs = moved[_i].joins > 0; /* where experts are padded they are not */
  Moves off, on;
  count_moves (model, cluster, moved[_i].words, "off", &off);
  count_moves (model, cluster, moved[_i].words, "on", &on);
  ck_assert_double_eq (off.selected, times * (2 * rows * WIDTH + chosen));
  ck_assert_double_eq (off.added, times * (2 * rows * WIDTH + chosen));
  ck_assert_double_eq (off.joined, times * (double)moved[_i].joins * rows * (2 * WIDTH + 1));
  ck_assert_double_eq (
      off.sorted,
      rows > 0 ? times * ((double)(moved[_i].of * moved[_i].here) + (sorts_probs ? chosen : 0))
               : 0);
  ck_assert_double_eq (off.kept - on.kept, layers * (double)(moved[_i].kept - moved[_i].mapped));
  ck_assert_double_eq (on.selected + on.added + on.joined + on.sorted, 0);
}
END_TEST

/* Experts computed one after the other (moe_grouped_gemm=off) keep as many bytes and take as many
 * FLOPs as grouped GEMMs, in GEMMs of their own; each frees what it kept before the gradients of
 * all experts' rows are joined. */
static const struct
{
  const char *words;
  gint64 experts; /* of a rank */
} one_by_one[] = {
  { "ep=8", 1 },
  { "ep=4", 2 },
  { "ep=1 moe_permute_fusion=off", 8 },
  { "ep=2 grad_accum_fusion=on", 4 },
  { "ep=2 moe_imbalance=1.7 stack=megatron-fsdp strategy=optim_grads_params", 4 },
};

typedef struct
{
  double kept, flops;
  gint64 products, grouped;
} Experts;

static gboolean
is_kept_by_one (const PlanBuffer *buffer)
{
  return g_str_has_prefix (buffer->name, "expert.gate_up.")
         || g_str_has_prefix (buffer->name, "expert.act.");
}

static void
count_experts (const TestCase *c, Experts *out)
{
  gint64 own = 0, own_in_all = 0, joined = 0;
  PlanCursor cursor;
  memset (out, 0, sizeof *out);
  plan_cursor_start (&cursor, c->schedule, PLAN_SECTION_STEP);
  for (const PlanOp *op; (op = plan_cursor_next (&cursor));)
    {
      const guint last = op->kind == PLAN_OP_JOIN_ROWS ? PLAN_REF_JOIN_ROWS_in : 0;
      if (op->refs[last].array < 0)
        continue;
      const PlanBuffer *buffer = plan_schedule_buffer (c->schedule, (guint)op->refs[last].array);
      const gint64 sign = op->kind == PLAN_OP_ALLOC ? 1 : op->kind == PLAN_OP_FREE ? -1 : 0;
      const gint64 bytes = sign * (gint64)plan_dtype_bytes (buffer->dtype, buffer->elements);
      const gboolean is_product = plan_op_work (op->kind) == PLAN_WORK_GEMM;
      out->kept
          += own_in_all == 0 && buffer->category == PLAN_CATEGORY_ACTIVATIONS ? (double)bytes : 0;
      own += is_kept_by_one (buffer) ? bytes : 0;
      if (plan_op_work (op->kind) == PLAN_WORK_LOSS && own_in_all == 0)
        own_in_all = MAX (own, 1);
      out->flops += is_product ? plan_op_flops (op) : 0;
      out->products += is_product;
      out->grouped += op->kind == PLAN_OP_GROUPED_GEMM || op->kind == PLAN_OP_GROUPED_GEMM_ADD;
      if (op->kind == PLAN_OP_JOIN_ROWS && g_str_equal (buffer->name, "d.rows.of.0"))
        {
          joined++;
          ck_assert_int_eq (own, own_in_all * (c->model->layers - joined) / c->model->layers);
          joined %= c->model->layers;
        }
    }
}

START_TEST (experts_go_one_by_one)
{
  static const char *const grouped[] = { "on", "off" };
  Experts all[G_N_ELEMENTS (grouped)];
  for (guint i = 0; i < G_N_ELEMENTS (grouped); i++)
    {
      g_auto (TestCase) c = { 0 };
      g_autofree char *words
          = g_strconcat ("gbs=16 seq=256 stack=megatron strategy=optim ", one_by_one[_i].words,
                         " moe_grouped_gemm=", grouped[i], NULL);
      test_case_init (&c, "mixtral-8x7b,layers=2", "dgx-h100:1", words);
      count_experts (&c, &all[i]);
    }
  const gint64 micro_batches = 2, layers = 2, products = 6; /* of an expert, in both passes */
  ck_assert_double_eq (all[1].kept, all[0].kept);
  ck_assert (fabs (all[1].flops - all[0].flops) < 1e-9 * all[0].flops);
  ck_assert_int_eq (all[0].grouped, micro_batches * layers * products);
  ck_assert_int_eq (all[1].grouped, one_by_one[_i].experts == 1 ? all[0].grouped : 0);
  ck_assert_int_eq (all[1].products - all[0].products,
                    (one_by_one[_i].experts - 1) * micro_batches * layers * products);
}
END_TEST

/* GEMMs of shared experts that are issued between the sending of rows and the wait for them: two in
 * the forward pass, four in the backward pass, and the two of the forward pass again where layers
 * are recomputed. */
static const struct
{
  const char *words;
  guint beside; /* of a layer with experts and a micro batch */
} shared[] = {
  { "ep=2 moe_shared_overlap=on", 6 },
  { "ep=2 moe_shared_overlap=off", 0 },
  { "ep=1 moe_shared_overlap=on", 0 },
  { "ep=2 tp=2 sp=on moe_shared_overlap=on", 6 },
  { "ep=2 moe_permute_fusion=off moe_shared_overlap=on", 6 },
  { "ep=2 recompute=full moe_shared_overlap=on", 8 },
  { "ep=2 moe_dispatcher=deepep moe_shared_overlap=on", 6 },
  { "ep=2 moe_dispatcher=hybridep moe_shared_overlap=on", 6 },
};

START_TEST (shared_experts_go_beside_rows)
{
  g_autoptr (PlanModel) model
      = plan_model_new ("family=deepseek_v3,layers=3,dense_layers=1,hidden=256,ffn=256,heads=4,"
                        "kv_heads=4,head_dim=96,q_lora=0,kv_lora=64,nope_dim=64,rope_dim=32,"
                        "v_dim=64,vocab=256,max_seq=256,experts=16,topk=4,router_groups=0,"
                        "router_group_topk=0,expert_ffn=128,shared_ffn=192,mtp=0",
                        NULL);
  g_autoptr (PlanCluster) cluster = plan_cluster_new ("dgx-h100:1", NULL);
  g_autofree char *all
      = g_strconcat ("gbs=16 mbs=1 seq=128 stack=megatron strategy=optim ", shared[_i].words, NULL);
  g_autoptr (PlanCase) of = test_case (model, cluster, all);
  g_autoptr (PlanSchedule) schedule = test_lower (of, 0);
  const gint64 devices = 8 / of->plan.value[PLAN_TP], micro_batches = 16 / devices;
  const gint64 wide = 192 / of->plan.value[PLAN_TP];
  guint beside = 0;
  gint32 sent = -1; /* event of an exchange that the compute stream has yet to wait for; -1: none */
  PlanCursor cursor;
  plan_cursor_start (&cursor, schedule, PLAN_SECTION_STEP);
  for (const PlanOp *op; (op = plan_cursor_next (&cursor));)
    {
      const gboolean is_shared = op->dims[0] == wide || op->dims[1] == wide || op->dims[2] == wide
                                 || op->dims[1] == 2 * wide || op->dims[2] == 2 * wide
                                 || op->dims[0] == 2 * wide;
      if (op->kind == PLAN_OP_ALL_TO_ALL || op->kind == PLAN_OP_SEND_TOKENS)
        sent = op->record.array;
      if (op->kind == PLAN_OP_WAIT && op->n_waits > 0 && op->waits[0].array == sent)
        sent = -1;
      if (sent >= 0 && (op->kind == PLAN_OP_GEMM || op->kind == PLAN_OP_GEMM_ADD))
        {
          ck_assert (is_shared);
          beside++;
        }
      if (sent >= 0)
        ck_assert (op->kind != PLAN_OP_GROUPED_GEMM && op->kind != PLAN_OP_PERMUTE
                   && op->kind != PLAN_OP_UNPERMUTE);
    }
  ck_assert_uint_eq (beside, 2 * (guint)micro_batches * shared[_i].beside);
}
END_TEST

/* Draws the experts of each token and counts what is sent: a token is sent to a rank or a node
 * once, however many of its experts are there. */
START_TEST (tokens_are_sent_once)
{
  static const gint64 eps[] = { 2, 4, 8, 16 };
  g_autoptr (GRand) rand = g_rand_new_with_seed ((guint32)_i);
  g_autoptr (PlanModel) model = plan_model_new ("qwen3-30b-a3b,layers=1", NULL);
  g_autoptr (PlanCluster) cluster = plan_cluster_new ("dgx-h100:2", NULL);
  const gint64 ep = eps[_i], own = model->experts / ep, tokens = 4096;
  g_autofree char *words = g_strdup_printf (
      "gbs=16 mbs=1 seq=4096 router_dtype=fp32 moe_dispatcher=deepep ep=%d", (int)ep);
  g_autoptr (PlanCase) of = test_case (model, cluster, words);
  double came = 0, near = 0, far = 0;
  for (gint64 token = 0; token < tokens; token++)
    {
      guint64 ranks = 0, nodes = 0, experts[2] = { 0, 0 };
      for (gint64 n = 0; n < model->topk;)
        {
          const gint64 expert = g_rand_int_range (rand, 0, (gint32)model->experts);
          if (experts[expert / 64] >> (expert % 64) & 1)
            continue;
          experts[expert / 64] |= G_GUINT64_CONSTANT (1) << (expert % 64);
          ranks |= G_GUINT64_CONSTANT (1) << (expert / own);
          nodes |= G_GUINT64_CONSTANT (1) << (expert / own / 8);
          n++;
        }
      came += __builtin_popcountll (ranks);
      near += __builtin_popcountll (ranks & ~(ranks & 1));
      far += __builtin_popcountll (nodes & ~G_GUINT64_CONSTANT (1)); /* of a token in node 0 */
    }
  const PlanSizes *sizes = &of->graphs.sizes;
  ck_assert_msg (fabs ((double)sizes->came_rows / came - 1) < 0.02, "%.0f", came);
  ck_assert_msg (fabs ((double)sizes->far_rows - far) < 0.02 * (double)tokens, "%.0f", far);
  if (ep <= 8)
    ck_assert_msg (fabs ((double)sizes->near_rows / near - 1) < 0.03, "%.0f", near);
}
END_TEST

/* Without recompute and with balanced experts, the FLOPs of a step's GEMMs are three times those of
 * a forward pass over its tokens. */
START_TEST (products_are_those_of_the_model)
{
  TestCase c;
  PlanTimes times = { 0 };
  double flops = 0;
  case_init (&c, _i);
  const gint64 *value = c.of->plan.value;
  const double tokens = (double)(value[PLAN_GBS] * value[PLAN_SEQ])
                        / (double)plan_cluster_devices (
                            c.cluster); /* of one rank; in a tensor-parallel group, its part */
  const double head = (double)(c.model->hidden) * 6 * tokens * (double)(1 + c.model->mtp);
  for (guint node = plan_schedule_section_node (c.schedule, PLAN_SECTION_STEP);
       node < plan_schedule_section_node (c.schedule, PLAN_SECTION_TEARDOWN); node++)
    {
      const PlanOp *op = plan_schedule_node (c.schedule, node);
      const gint64 n = plan_times_next (&times, op);
      if (op->kind < PLAN_N_OPS && plan_op_work (op->kind) == PLAN_WORK_GEMM)
        flops += (double)n * plan_op_flops (op);
    }
  if (value[PLAN_RECOMPUTE] == PLAN_RECOMPUTE_NONE && value[PLAN_MOE_IMBALANCE] == 1000000
      && value[PLAN_MOE_CAPACITY] == 0)
    {
      /* What is left is the output layer, whose vocabulary is padded. */
      const double expected = 6 * tokens * work_by_tensors (c.model);
      const double rest = (flops - expected) / head;
      ck_assert_msg (rest >= (double)c.model->vocab - 1
                         && rest <= (double)c.model->vocab + 128.0 * (double)value[PLAN_TP] + 1,
                     "seed %d: %.0f FLOPs in layers want %.0f, which leaves a head of %.1f for %d",
                     _i, flops, expected, rest, (int)c.model->vocab);
    }
  test_case_clear (&c);
}
END_TEST

/* Elements of moments on a rank between steps: those of experts are sharded over the ranks that
 * have the same experts, all others over all data-parallel ranks. Padding adds to both. */
START_TEST (resting_moments_are_sharded_over_their_ranks)
{
  TestCase c;
  case_init (&c, _i);
  const gint64 *value = c.of->plan.value;
  const double inner
      = (double)(plan_cluster_devices (c.cluster) / value[PLAN_TP] / value[PLAN_DP_OUTER]);
  const double of_experts = (double)(plan_cluster_devices (c.cluster) / value[PLAN_EP]
                                     / value[PLAN_ETP] / value[PLAN_DP_OUTER]);
  const gint64 hidden = width_of (c.model), ffn = c.model->expert_ffn;
  const gint64 biases = c.model->expert_bias ? 2 * ffn + hidden : 0;
  const double expert = (double)count_moe (c.model) * (double)c.model->experts
                        / (double)(value[PLAN_EP] * value[PLAN_ETP])
                        * (double)((c.model->gated ? 3 : 2) * hidden * ffn + biases);
  double moments = 0, of_experts_moments = 0;
  for (guint i = 0; i < plan_schedule_n_buffers (c.schedule); i++)
    {
      const PlanBuffer *buffer = plan_schedule_buffer (c.schedule, i);
      if (!g_str_has_prefix (buffer->name, "exp_avg."))
        continue;
      const gboolean is_expert = strcmp (buffer->name, "exp_avg.experts") == 0;
      const gint64 moe = count_moe (c.model), linear = count_linear (c.model);
      const double units
          = is_expert                                         ? (double)moe
            : strcmp (buffer->name, "exp_avg.recurrent") == 0 ? (double)linear
            : strcmp (buffer->name, "exp_avg.attention") == 0 ? (double)count_letter (c.model, '*')
            : strcmp (buffer->name, "exp_avg.plain") == 0     ? (double)moe
            : strcmp (buffer->name, "exp_avg.layer") == 0
                ? (double)(linear == moe || *c.model->pattern.of ? moe : moe - linear)
            : strcmp (buffer->name, "exp_avg.recurrent_plain") == 0 ? (double)linear
            : strcmp (buffer->name, "exp_avg.attention_plain") == 0
                ? (double)count_letter (c.model, '*')
            : g_str_has_prefix (buffer->name, "exp_avg.dense") && *c.model->pattern.of
                ? (double)count_letter (c.model, '-')
            : g_str_has_prefix (buffer->name, "exp_avg.dense")
                ? (double)(c.model->layers + c.model->mtp - moe)
                : 1;
      moments += units * (double)buffer->elements;
      of_experts_moments += is_expert ? units * (double)buffer->elements : 0;
    }
  const gboolean is_sharded = value[PLAN_STRATEGY] != PLAN_STRATEGY_NO_SHARD;
  const double split
      = value[PLAN_OUTER_STRATEGY] == PLAN_OUTER_STRATEGY_OPTIM ? (double)value[PLAN_DP_OUTER] : 1;
  const double here = expert / (is_sharded ? of_experts * split : 1);
  ck_assert_msg (of_experts_moments >= here * 0.999 && of_experts_moments <= here * 1.6 + 4096,
                 "seed %d: %.0f elements of experts, not %.0f", _i, of_experts_moments, here);
  const guint64 all = plan_model_parameters (c.model)
                      + plan_model_mtp_parameters (c.model); /* not in plan_model_parameters */
  const double rest = (double)all - expert * (double)(value[PLAN_EP] * value[PLAN_ETP]);
  const double least = rest / (double)value[PLAN_TP] / (is_sharded ? inner * split : 1);
  ck_assert_msg (moments - of_experts_moments >= 0.999 * least,
                 "seed %d: %.0f elements, %.0f least", _i, moments - of_experts_moments, least);
  test_case_clear (&c);
}
END_TEST

/* The `keys` dimension that a layer's attention must have: twice the tokens that a query sees on
 * average, less one since a token counts itself half; counted token by token. */
static double
keys_by_counting (const PlanModel *model, gint64 layer, gint64 seq)
{
  const gboolean is_full
      = model->full_every > 0
            ? (layer + 1) % model->full_every == 0
            : layer < model->window_from || (layer - model->window_from) % model->window_every != 0;
  const gboolean is_windowed = model->window > 0 && !is_full;
  double seen = 0;
  for (gint64 token = 0; token < seq; token++)
    seen += is_windowed && model->window_chunks        ? (double)(token % model->window + 1)
            : is_windowed && token + 1 > model->window ? (double)model->window
                                                       : (double)token + 1;
  return (2 * seen - (double)seq) / (double)seq;
}

/* The attention ops of each layer have the keys of that layer's window, also where layers are
 * iterations of a loop. */
START_TEST (windows_are_those_of_their_layers)
{
  TestCase c = { .cluster = plan_cluster_new (_i % 2 ? "dgx-b200:1" : "dgx-h100:2", NULL) };
  PlanCursor cursor;
  c.model = random_wide_model (3 * (guint)_i); /* one that may have windows */
  c.of = random_wide_case (3 * (guint)_i, c.model, c.cluster);
  c.schedule = test_lower (c.of, 0);
  const gint64 attended = plan_attended_tokens (&c.of->plan), parts = c.of->plan.value[PLAN_CP];
  g_autofree double *keys = g_new0 (double, c.model->layers);
  plan_cursor_start (&cursor, c.schedule, PLAN_SECTION_STEP);
  for (const PlanOp *op; (op = plan_cursor_next (&cursor));)
    if (op->kind == PLAN_OP_ATTENTION)
      keys[plan_cursor_index (&cursor, &op->refs[PLAN_REF_ATTENTION_qkv])]
          += (double)op->dims[PLAN_DIM_ATTENTION_keys];
  for (gint64 layer = 0; layer < c.model->layers; layer++)
    {
      /* A layer's attention runs once in each micro batch, and again where it is recomputed. */
      const double expected = keys_by_counting (c.model, layer, attended);
      const double times = round (keys[layer] / expected);
      ck_assert_msg (times >= 1 && fabs (keys[layer] / times - expected) <= 1 + (double)parts,
                     "seed %d: layer %" G_GINT64_FORMAT " sees %.1f keys in all, %.1f each time",
                     3 * _i, layer, keys[layer], expected);
    }
  test_case_clear (&c);
}
END_TEST

#define LLAMA4 \
  "family=llama4_text,layers=4,hidden=64,ffn=176,heads=4,kv_heads=2,head_dim=16,vocab=256,max_" \
  "seq=128"

/* FLOPs of attention, by counting which tokens each query of each layer sees: all, in layers
 * whose number is a multiple of 4, and in others those of its chunk. A token counts itself half. */
START_TEST (flops_of_chunks)
{
  static const gint64 seqs[] = { 5, 7, 8, 14, 15, 30 };
  g_autoptr (PlanModel) model = plan_model_new (LLAMA4 ",window=7", NULL);
  g_autoptr (PlanModel) plain
      = plan_model_new (LLAMA4 ",window=0,window_chunks=off,full_every=0", NULL);
  ck_assert_ptr_nonnull (model);
  for (guint s = 0; s < G_N_ELEMENTS (seqs); s++)
    {
      double pairs = 0, all = 0;
      for (gint64 layer = 1; layer <= model->layers; layer++)
        for (gint64 query = 0; query < seqs[s]; query++)
          for (gint64 key = 0; key <= query; key++)
            {
              const double weight = key == query ? 0.5 : 1;
              all += weight;
              pairs += layer % 4 == 0 || key / 7 == query / 7 ? weight : 0;
            }
      const double less = 12.0 * (double)(model->heads * model->head_dim) * (all - pairs);
      ck_assert_double_eq_tol ((double)seqs[s]
                                   * (plan_model_flops_per_token (plain, seqs[s], 256)
                                      - plan_model_flops_per_token (model, seqs[s], 256)),
                               less, 1e-6 * (1 + less));
    }
  g_autoptr (PlanModel) maverick = plan_model_new ("llama4-maverick", NULL);
  const double linear = 5120.0 * (5120 + 2 * 1024 + 5120) + 6.0 * 5120 * 8192;
  ck_assert_double_eq (plan_model_flops_per_token (maverick, 20480, 202048),
                       6 * (48 * linear + 5120.0 * (12 * 20480.0 + 36 * 7372.8) + 5120 * 202048.0));
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("prop-kinds");
  TCase *tcase = tcase_create ("random");
  tcase_set_timeout (tcase, 1800);
  test_add_share (tcase, schedules_pass_their_check, 400);
  test_add_share (tcase, tokens_go_to_their_experts_and_back, 200);
  test_add_share (tcase, products_are_those_of_the_model, 200);
  tcase_add_loop_test (tcase, tokens_are_sent_once, 0, 4);
  tcase_add_loop_test (tcase, host_waits_for_rows_it_does_not_know, 0, G_N_ELEMENTS (waits_of));
  tcase_add_loop_test (tcase, rows_are_moved_op_by_op, 0, G_N_ELEMENTS (moved));
  tcase_add_loop_test (tcase, experts_go_one_by_one, 0, G_N_ELEMENTS (one_by_one));
  tcase_add_loop_test (tcase, shared_experts_go_beside_rows, 0, G_N_ELEMENTS (shared));
  test_add_share (tcase, resting_moments_are_sharded_over_their_ranks, 200);
  test_add_share (tcase, windows_are_those_of_their_layers, 120);
  tcase_add_test (tcase, flops_of_chunks);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
