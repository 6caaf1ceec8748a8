/* SPDX-License-Identifier: Apache-2.0 */
/* Interleaved pipelines: the order of passes, who holds what, and how long a step takes. Two
 * oracles: one knows only which pass waits for which; the other one runs all stages side by side,
 * each op of every stream as soon as it can begin, in whatever order the ops are looked at. */
#include "config.h"

#include "planner/lower/lower.h"
#include "planner/plan/stages.h"
#include "planner/schedule/check-stages.h"
#include "planner/schedule/meter.h"
#include "sim/fast/measure.h"
#include "sim/fast/passes.h"
#include "sim/fast/stages.h"
#include "sim/sim.h"
#include "tests/prop/pipelines.h"
#include "tests/share.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* A pipeline as the first oracle sees it: `n` stages of `n_virtual` virtual stages each, `m` micro
 * batches in groups of `group`, and times of passes by virtual stage, in the order of layers. */
typedef struct
{
  gint64 n, n_virtual, m, group, c; /* c: time from one stage to another */
  gint64 forward[MOST_STAGES * 4], backward[MOST_STAGES * 4];
  gint64 more; /* forward passes ahead beyond the usual number */
} Times;

static guint
list_passes (const Times *t, gboolean is_backward, Pass *out)
{
  return pipeline_passes (t->m, t->group, t->n_virtual, is_backward, out);
}

/* How many forward passes of stage `r`, of `all`, come before its turns. */
static guint
passes_ahead (const Times *t, gint64 r, guint all)
{
  const gint64 ahead = 2 * (t->n - 1 - r) + (t->n_virtual - 1) * t->group + t->more;
  return (guint)MIN (ahead, all);
}

/* Writes down all passes of stage `r` in order: some forward ones ahead, then one forward and one
 * backward in turns. */
static guint
write_down (const Times *t, gint64 r, Pass *out)
{
  Pass forward[MOST_PASSES], backward[MOST_PASSES];
  const guint all = list_passes (t, FALSE, forward);
  list_passes (t, TRUE, backward);
  guint ahead = passes_ahead (t, r, all), n = 0;
  for (guint i = 0; i < ahead; i++)
    out[n++] = forward[i];
  for (guint i = 0; i < all; i++)
    {
      if (ahead + i < all)
        out[n++] = forward[ahead + i];
      out[n++] = backward[i];
    }
  return n;
}

/* The time at which the last pass ends if each begins as early as it can. */
static gint64
time_slowly (const Times *t)
{
  static gint64 done[2][MOST_STAGES * 4][MOST_PASSES];
  Pass todo[MOST_STAGES][2 * MOST_PASSES];
  guint at[MOST_STAGES] = { 0 }, n = 0;
  gint64 now[MOST_STAGES] = { 0 }, end = 0;
  const gint64 last = t->n * t->n_virtual - 1;
  gboolean moves = TRUE;
  memset (done, -1, sizeof done);
  for (gint64 r = 0; r < t->n; r++)
    n = write_down (t, r, todo[r]);
  while (moves)
    {
      moves = FALSE;
      for (gint64 r = 0; r < t->n; r++)
        {
          const Pass *pass = &todo[r][at[r]];
          if (at[r] == n)
            continue;
          const gint64 place = pass->virtual_stage * t->n + r;
          const gint64 needed = !pass->is_backward
                                    ? (place == 0 ? 0 : done[0][place - 1][pass->micro_batch])
                                : place == last ? done[0][place][pass->micro_batch]
                                                : done[1][place + 1][pass->micro_batch];
          if (needed < 0)
            continue;
          const gboolean travels = place != (pass->is_backward ? last : 0);
          now[r] = MAX (now[r], needed + (travels ? t->c : 0))
                   + (pass->is_backward ? t->backward[place] : t->forward[place]);
          done[pass->is_backward][place][pass->micro_batch] = now[r];
          end = MAX (end, now[r]);
          at[r]++;
          moves = TRUE;
        }
    }
  for (gint64 r = 0; r < t->n; r++)
    ck_assert_uint_eq (at[r], n);
  return end;
}

/* Step times by an earlier, separate model of interleaved pipelines. */
START_TEST (the_oracle_knows_its_numbers)
{
  const struct
  {
    Times times;
    gint64 step;
  } known[] = {
    { { 2, 2, 4, 2, 2, { 18, 5, 12, 19 }, { 40, 25, 27, 17 }, 0 }, 400 },
    { { 4, 2, 8, 4, 2, { 16, 12, 12, 19, 14, 5, 18, 8 }, { 15, 30, 33, 37, 19, 13, 33, 20 }, 0 },
      867 },
    { { 4,
        3,
        8,
        4,
        2,
        { 18, 11, 14, 14, 20, 17, 6, 20, 12, 17, 18, 10 },
        { 21, 27, 38, 32, 34, 31, 33, 21, 12, 24, 31, 26 },
        0 },
      1292 },
  };
  for (guint i = 0; i < G_N_ELEMENTS (known); i++)
    ck_assert_int_eq (time_slowly (&known[i].times), known[i].step);
}
END_TEST

/* Virtual stages that are alike: m v (f + b) + (p - 1) (f + b). */
START_TEST (the_closed_form_holds)
{
  Times t = { .n = 2 + _i % 7, .n_virtual = 2 + _i / 7 % 3 };
  t.group = t.n;
  t.m = t.n * (1 + _i / 21);
  for (gint64 i = 0; i < t.n * t.n_virtual; i++)
    {
      t.forward[i] = 14;
      t.backward[i] = 30;
    }
  ck_assert_int_eq (time_slowly (&t), (t.m * t.n_virtual + t.n - 1) * 44);
}
END_TEST

static Times
times_of (const Pipeline *p)
{
  const gint64 *value = p->of->plan.value;
  return (Times){ .n = value[PLAN_PP],
                  .n_virtual = value[PLAN_VPP],
                  .m = plan_micro_batches (&p->of->plan, p->cluster),
                  .group
                  = value[PLAN_PP_GROUP] == PLAN_UNSET ? value[PLAN_PP] : value[PLAN_PP_GROUP],
                  .more = value[PLAN_EP_OVERLAP] == PLAN_EP_OVERLAP_ON };
}

/* Finds the passes of a stage's schedule by the attention of the layer that each begins with:
 * forward the first of its virtual stage, backward the last. */
static guint
find_passes (const Pipeline *p, guint stage, Pass *out)
{
  const PlanSchedule *schedule = p->schedules[stage];
  const PlanStage part = plan_stage_of (p->model, p->of->stack, &p->of->plan, stage);
  PlanCursor cursor;
  guint n = 0;
  plan_cursor_start (&cursor, schedule, PLAN_SECTION_STEP);
  for (const PlanOp *op; (op = plan_cursor_next (&cursor));)
    if (op->kind == PLAN_OP_ATTENTION || op->kind == PLAN_OP_ATTENTION_BWD)
      {
        const gboolean is_backward = op->kind == PLAN_OP_ATTENTION_BWD;
        const PlanRef *ref
            = &op->refs[is_backward ? PLAN_REF_ATTENTION_BWD_out : PLAN_REF_ATTENTION_out];
        const gint64 index = plan_cursor_index (&cursor, ref);
        for (gint64 i = 0; i < part.n_virtual; i++)
          {
            const PlanStage one = plan_stage_virtual (&part, i);
            const gint64 edge = is_backward ? one.first + one.layers - 1 : one.first;
            if (one.layers > 0 && index % part.layers == edge)
              out[n++] = (Pass){ is_backward, i, index / part.layers };
          }
      }
  return n;
}

/* Leaves out passes in which there is no layer. */
static guint
leave_out_empty (const Pipeline *p, guint stage, Pass *passes, guint n)
{
  const PlanStage part = plan_stage_of (p->model, p->of->stack, &p->of->plan, stage);
  guint left = 0;
  for (guint i = 0; i < n; i++)
    if (plan_stage_virtual (&part, passes[i].virtual_stage).layers > 0)
      passes[left++] = passes[i];
  return left;
}

/* Schedules have the passes that are written down, and a stage holds as many micro batches at once
 * as plan_stage_held says. Rows of activations are all that tells micro batches apart in them. */
START_TEST (passes_come_in_the_order_that_is_described)
{
  g_auto (Pipeline) p = { 0 };
  Pass wanted[2 * MOST_PASSES], found[4 * MOST_PASSES];
  pipeline_init (&p, (guint)_i, TRUE);
  if (p.of->plan.value[PLAN_RECOMPUTE] != PLAN_RECOMPUTE_NONE)
    test_case_set (&p.of, "recompute=none recompute_layers=1 recompute_modules=core_attn");
  const Times t = times_of (&p);
  for (guint i = 0; i < p.n; i++)
    {
      g_clear_pointer (&p.schedules[i], plan_schedule_free);
      p.schedules[i] = test_lower (p.of, i * (guint)plan_cluster_devices (p.cluster) / p.n);
      const guint all = write_down (&t, i, wanted);
      const gint64 rows = plan_stage_rows (&p.of->plan, i, t.m);
      gint64 held = 0, most = 0;
      for (guint k = 0; k < all; k++)
        {
          held += wanted[k].is_backward ? -1 : 1;
          most = MAX (most, held);
        }
      ck_assert_int_eq (most, plan_stage_held (&p.of->plan, i, t.m));
      const guint n = leave_out_empty (&p, i, wanted, all);
      ck_assert_uint_eq (find_passes (&p, i, found), n);
      for (guint k = 0; k < n; k++)
        {
          ck_assert_int_eq (found[k].is_backward, wanted[k].is_backward);
          ck_assert_int_eq (found[k].virtual_stage, wanted[k].virtual_stage);
          ck_assert_int_eq (found[k].micro_batch, wanted[k].micro_batch % rows);
        }
    }
}
END_TEST

/* Megatron-LM's own example of a smaller last group: two stages of two virtual stages each, five
 * micro batches in groups of three (schedules.py, forward_backward_pipelining_with_interleaving).
 */
START_TEST (a_smaller_last_group_comes_last)
{
  static const gint64 micro_batches[] = { 0, 1, 2, 0, 1, 2, 3, 4, 3, 4 },
                      chunks[] = { 0, 0, 0, 1, 1, 1, 0, 0, 1, 1 };
  const Plan plan = test_plan ("stack=megatron strategy=optim pp=2 vpp=2 pp_group=3");
  for (gint64 at = 0; at < 10; at++)
    for (guint is_backward = 0; is_backward < 2; is_backward++)
      {
        const PlanStagePass pass = plan_stage_pass (&plan, 5, at, is_backward);
        ck_assert_int_eq (pass.micro_batch, micro_batches[at]);
        ck_assert_int_eq (pass.virtual_stage, is_backward ? 1 - chunks[at] : chunks[at]);
      }
}
END_TEST

/* The last stage has one set of logits at a time, but several where the last group is smaller: it
 * runs as many forward passes ahead as before, which are those of more micro batches then. Logits
 * are those that are held between the passes that are written down. The loss of a turn whose passes
 * run beside each other comes after the backward pass of the other one. Of the random pipelines
 * some have such a group. */
START_TEST (a_smaller_last_group_holds_more_logits)
{
  guint smaller = 0;
  for (guint seed = 0; seed < 80; seed++)
    {
      g_auto (Pipeline) p = { 0 };
      pipeline_init (&p, seed, TRUE);
      const Times t = times_of (&p);
      const PlanSchedule *last = p.schedules[p.n - 1];
      gint64 held = 0, most = 0, logits = 0, kept = 0;
      Pass passes[2 * MOST_PASSES];
      const guint n = write_down (&t, p.n - 1, passes);
      const guint ahead = passes_ahead (&t, p.n - 1, n / 2);
      for (guint i = ahead; t.more && i + 1 < n - ahead; i += 2)
        {
          const Pass forward = passes[i];
          passes[i] = passes[i + 1];
          passes[i + 1] = forward;
        }
      for (guint i = 0; i < n; i++)
        if (passes[i].virtual_stage == t.n_virtual - 1)
          {
            held += passes[i].is_backward ? -1 : 1;
            most = MAX (most, held);
          }
      ck_assert (most == 1 || t.m % t.group != 0);
      smaller += most > 1;
      PlanCursor cursor;
      plan_cursor_start (&cursor, last, PLAN_SECTION_STEP);
      for (const PlanOp *op; (op = plan_cursor_next (&cursor));)
        {
          const gboolean is_alloc = op->kind == PLAN_OP_ALLOC;
          if ((!is_alloc && op->kind != PLAN_OP_FREE)
              || strcmp (plan_schedule_buffer (last, (guint)op->refs[0].array)->name, "rstd_final")
                     != 0)
            continue;
          kept += is_alloc ? 1 : -1;
          logits = MAX (logits, kept);
        }
      ck_assert_int_eq (logits, most * (1 + p.model->mtp));
    }
  ck_assert_uint_gt (smaller, 4);
}
END_TEST

/* Every layer, and every parameter outside the layers, is on one stage. The embedding alone is on
 * the last stage as well where it is tied, or where a prediction module reads it. */
START_TEST (every_parameter_is_on_one_stage)
{
  g_auto (Pipeline) p = { 0 };
  pipeline_init (&p, (guint)_i, TRUE);
  guint64 parameters = 0;
  g_autofree guint *times = g_new0 (guint, p.model->layers);
  for (guint i = 0; i < p.n; i++)
    {
      const PlanStage stage = plan_stage_of (p.model, p.of->stack, &p.of->plan, i);
      const PlanModel part = plan_stage_model (&stage, p.model);
      parameters += plan_model_parameters (&part);
      for (gint64 layer = 0; layer < stage.layers - stage.modules; layer++)
        {
          const gint64 place = plan_stage_layer (&stage, layer);
          ck_assert_int_lt (place, p.model->layers);
          times[place]++;
          ck_assert_uint_eq (plan_model_layer_kind (&part, layer, 64),
                             plan_model_layer_kind (p.model, place, 64));
        }
    }
  for (gint64 layer = 0; layer < p.model->layers; layer++)
    ck_assert_uint_eq (times[layer], 1);
  ck_assert_uint_eq (parameters, plan_model_parameters (p.model)
                                     + plan_model_mtp_parameters (p.model)
                                     + (p.model->tied_embeddings || p.model->mtp > 0
                                            ? (guint64)(p.model->vocab * p.model->hidden)
                                            : 0));
}
END_TEST

#define MOST_BEFORE (PLAN_MAX_WAITS + 3)

/* An op of some step. It begins when all ops `before`, places in its stage's list, have ended. */
typedef struct
{
  gint64 end_ns; /* -1: not done */
  gint64 ns;
  guint stream, meeting; /* G_MAXUINT: it meets nobody */
  guint before[MOST_BEFORE], n_before;
} Work;

/* An op that `wanted` stages do together: the stages, and its place in each one's list. */
typedef struct
{
  guint stage[MOST_STAGES], place[MOST_STAGES], n, wanted;
} Together;

#define STEPS 6

/* All stages, as they run side by side. */
typedef struct
{
  const Pipeline *pipeline;
  GArray *work[MOST_STAGES];                  /* Work, as it is issued */
  GArray *queue[MOST_STAGES][PLAN_N_STREAMS]; /* guint: places in that list */
  guint at[MOST_STAGES][PLAN_N_STREAMS];      /* how many of a queue are done */
  guint last_of_step[MOST_STAGES][STEPS];     /* the host's last wait */
  GArray *together;                           /* Together */
  GHashTable *names;                          /* char * -> index of what is done together */
} World;

static Work *
work_at (const World *self, guint stage, guint place)
{
  return &g_array_index (self->work[stage], Work, place);
}

static void
come_behind (Work *work, guint place)
{
  if (place != G_MAXUINT)
    work->before[work->n_before++] = place;
}

/* Enters an op of a stage among those that are done together, under a name that it has on all its
 * stages, and returns its index. Frees the name. */
static guint
meet (World *self, guint stage, guint place, char *name, guint wanted)
{
  gpointer known;
  if (!g_hash_table_lookup_extended (self->names, name, NULL, &known))
    {
      const Together none = { .wanted = wanted };
      known = GUINT_TO_POINTER (self->together->len);
      g_array_append_val (self->together, none);
      g_hash_table_insert (self->names, g_strdup (name), known);
    }
  Together *all = &g_array_index (self->together, Together, GPOINTER_TO_UINT (known));
  all->stage[all->n] = stage;
  all->place[all->n++] = place;
  g_free (name);
  return GPOINTER_TO_UINT (known);
}

/* The index of what an op is done together with, G_MAXUINT if that is no other stage's. The k-th op
 * of a kind on one stage meets the k-th on the other: `times` counts them, trades that send by
 * peer, then those that receive by peer; then ops of all stages; then those of the shared
 * embedding; then trades that do both, by peer. */
static guint
meeting_of (World *self, guint stage, guint place, const PlanOp *op, guint *times)
{
  if (op->group < 0)
    return G_MAXUINT;
  const PlanGroup *group = plan_schedule_group (self->pipeline->schedules[stage], (guint)op->group);
  if (op->kind == PLAN_OP_TRADE)
    {
      const guint peer = (guint)op->dims[PLAN_DIM_TRADE_peer];
      const gboolean sends = op->refs[PLAN_REF_TRADE_in].array >= 0;
      const guint from = sends ? stage : peer, to = sends ? peer : stage;
      if (sends && op->refs[PLAN_REF_TRADE_out].array >= 0)
        return meet (self, stage, place,
                     g_strdup_printf ("%u and %u, %u", MIN (stage, peer), MAX (stage, peer),
                                      times[2 * MOST_STAGES + 2 + peer]++),
                     2);
      const guint time = times[sends ? peer : MOST_STAGES + peer]++;
      return meet (self, stage, place, g_strdup_printf ("%u to %u, %u", from, to, time), 2);
    }
  if (strcmp (group->name, "world") != 0 && strcmp (group->name, "embedding") != 0)
    return G_MAXUINT;
  const gboolean is_world = *group->name == 'w';
  const guint time = times[2 * MOST_STAGES + (is_world ? 0 : 1)]++;
  return meet (self, stage, place, g_strdup_printf ("%s, %u", group->name, time),
               is_world ? self->pipeline->n : 2);
}

/* Lists what a stage does in some steps, with what each op comes behind. */
static void
list_work (World *self, guint stage)
{
  const PlanSchedule *schedule = self->pipeline->schedules[stage];
  const guint32 n_events = plan_schedule_n_event_ids (schedule);
  g_autofree guint *recorded = g_new (guint, n_events);
  guint last_sync = G_MAXUINT, of_group[PLAN_MAX_GROUPS], times[3 * MOST_STAGES + 2] = { 0 };
  memset (recorded, 0xff, n_events * sizeof *recorded);
  memset (of_group, 0xff, sizeof of_group);
  for (guint step = 0; step < STEPS; step++)
    {
      PlanCursor cursor;
      plan_cursor_start (&cursor, schedule, PLAN_SECTION_STEP);
      for (const PlanOp *op; (op = plan_cursor_next (&cursor));)
        {
          if (plan_op_class (op->kind) == PLAN_CLASS_MEMORY)
            continue;
          const guint place = self->work[stage]->len;
          GArray *queue = self->queue[stage][op->stream];
          Work work = { .end_ns = -1,
                        .ns = sim_cost_ns (self->pipeline->costs[stage], cursor.node),
                        .stream = op->stream,
                        .meeting = meeting_of (self, stage, place, op, times) };
          come_behind (&work, last_sync);
          for (guint i = 0; i < op->n_waits; i++)
            come_behind (&work, recorded[plan_cursor_event (&cursor, &op->waits[i])]);
          if (op->group >= 0)
            {
              come_behind (&work, of_group[op->group]);
              of_group[op->group] = place;
            }
          if (op->record.array >= 0)
            recorded[plan_cursor_event (&cursor, &op->record)] = place;
          if (op->kind == PLAN_OP_SYNC)
            last_sync = place;
          g_array_append_val (self->work[stage], work);
          g_array_append_val (queue, place);
        }
      self->last_of_step[stage][step] = last_sync;
    }
}

/* When an op can begin; -1: something before it is not done. */
static gint64
ready_ns (const World *self, guint stage, guint place)
{
  const Work *work = work_at (self, stage, place);
  const guint at = self->at[stage][work->stream];
  const GArray *queue = self->queue[stage][work->stream];
  if (at == queue->len || g_array_index (queue, guint, at) != place)
    return -1;
  gint64 ready = at > 0 ? work_at (self, stage, g_array_index (queue, guint, at - 1))->end_ns : 0;
  for (guint i = 0; i < work->n_before; i++)
    {
      const gint64 end = work_at (self, stage, work->before[i])->end_ns;
      if (end < 0)
        return -1;
      ready = MAX (ready, end);
    }
  return ready;
}

static void
finish (World *self, guint stage, guint place, gint64 begin_ns)
{
  Work *work = work_at (self, stage, place);
  work->end_ns = begin_ns + work->ns;
  self->at[stage][work->stream]++;
}

/* Does the first op of a stream that is left, if it and whoever it meets can begin. */
static gboolean
do_one (World *self, guint stage, guint stream)
{
  const GArray *queue = self->queue[stage][stream];
  const guint at = self->at[stage][stream];
  if (at == queue->len)
    return FALSE;
  const guint place = g_array_index (queue, guint, at);
  const guint meeting = work_at (self, stage, place)->meeting;
  gint64 begin_ns = ready_ns (self, stage, place);
  if (begin_ns < 0)
    return FALSE;
  if (meeting == G_MAXUINT)
    {
      finish (self, stage, place, begin_ns);
      return TRUE;
    }
  const Together *all = &g_array_index (self->together, Together, meeting);
  ck_assert_uint_eq (all->n, all->wanted);
  for (guint i = 0; i < all->n; i++)
    {
      const gint64 ready = ready_ns (self, all->stage[i], all->place[i]);
      if (ready < 0)
        return FALSE;
      begin_ns = MAX (begin_ns, ready);
    }
  for (guint i = 0; i < all->n; i++)
    finish (self, all->stage[i], all->place[i], begin_ns);
  return TRUE;
}

/* Runs STEPS steps of all stages side by side; the time of the last one. */
static gint64
run_side_by_side (const Pipeline *pipeline)
{
  World self = { .pipeline = pipeline,
                 .together = g_array_new (FALSE, FALSE, sizeof (Together)),
                 .names = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL) };
  gboolean moves = TRUE;
  for (guint i = 0; i < pipeline->n; i++)
    {
      self.work[i] = g_array_new (FALSE, FALSE, sizeof (Work));
      for (guint s = 0; s < PLAN_N_STREAMS; s++)
        self.queue[i][s] = g_array_new (FALSE, FALSE, sizeof (guint));
      list_work (&self, i);
    }
  while (moves)
    {
      moves = FALSE;
      for (guint i = 0; i < pipeline->n; i++)
        for (guint s = 0; s < PLAN_N_STREAMS; s++)
          while (do_one (&self, i, s))
            moves = TRUE;
    }
  gint64 ns = 0;
  for (guint i = 0; i < pipeline->n; i++)
    for (guint s = 0; s < PLAN_N_STREAMS; s++)
      ck_assert_uint_eq (self.at[i][s], self.queue[i][s]->len);
  ns = work_at (&self, 0, self.last_of_step[0][STEPS - 1])->end_ns
       - work_at (&self, 0, self.last_of_step[0][STEPS - 2])->end_ns;
  for (guint i = 0; i < pipeline->n; i++)
    {
      g_array_unref (self.work[i]);
      for (guint s = 0; s < PLAN_N_STREAMS; s++)
        g_array_unref (self.queue[i][s]);
    }
  g_array_unref (self.together);
  g_hash_table_unref (self.names);
  return ns;
}

/* Every op has a constant cost, and none slows another one down. */
START_TEST (a_step_takes_what_stages_side_by_side_do)
{
  g_auto (Pipeline) p = { 0 };
  g_autoptr (GError) error = NULL;
  PlanTrace *traces[MOST_STAGES];
  pipeline_init (&p, (guint)_i, TRUE);
  ck_assert_msg (plan_schedule_check_stages ((const PlanSchedule *const *)p.schedules, p.n, &error),
                 "seed %d: %s", _i, error ? error->message : "");
  for (guint i = 0; i < p.n; i++)
    {
      ck_assert_msg (plan_schedule_check (p.schedules[i], &error), "seed %d, stage %u: %s", _i, i,
                     error ? error->message : "");
      sim_cost_free (p.costs[i]);
      p.costs[i] = sim_cost_new_constant (p.schedules[i], 1 + (i + (guint)_i) % 3, 0);
    }
  const SimPipeline pipeline = { (const PlanSchedule *const *)p.schedules, p.n };
  ck_assert_msg (sim_run_stages (&pipeline, (const SimCost *const *)p.costs, p.of->stack, traces,
                                 NULL, &error),
                 "seed %d: %s", _i, error ? error->message : "");
  const gint64 wanted = run_side_by_side (&p);
  g_autoptr (SimStages) fast = sim_stages_new (&pipeline, (const SimCost *const *)p.costs);
  ck_assert (!sim_stages_run (fast) || sim_stages_step_ns (fast) == wanted);
  ck_assert_msg (traces[0]->step_ns == wanted,
                 "seed %d: %" G_GINT64_FORMAT " ns, and %" G_GINT64_FORMAT " side by side", _i,
                 traces[0]->step_ns, wanted);
  for (guint i = 0; i < p.n; i++)
    {
      ck_assert_int_eq (traces[i]->step_ns, wanted);
      plan_trace_free (traces[i]);
    }
}
END_TEST

static gboolean
are_alike (const PlanTrace *a, const PlanTrace *b)
{
  return a->step_ns == b->step_ns && a->idle_ns == b->idle_ns && a->compute_ns == b->compute_ns
         && a->exposed_tensor_ns == b->exposed_tensor_ns
         && a->exposed_gather_ns == b->exposed_gather_ns
         && a->exposed_reduce_ns == b->exposed_reduce_ns && a->host_ns == b->host_ns
         && a->spans->len == b->spans->len
         && memcmp (a->spans->data, b->spans->data, a->spans->len * sizeof (PlanSpan)) == 0;
}

/* With real costs, of ops that slow one another down, skipping micro batches that begin as others
 * did does not change the step; one pipeline in three has no virtual stages. */
START_TEST (skipped_passes_change_nothing)
{
  g_auto (Pipeline) p = { 0 };
  g_autoptr (GError) error = NULL;
  PlanTrace *wanted[MOST_STAGES], *traces[MOST_STAGES];
  SimPasses found, again;
  guint n_steps;
  pipeline_init (&p, (guint)_i, _i % 3 > 0);
  const SimPipeline pipeline = { (const PlanSchedule *const *)p.schedules, p.n };
  const SimCost *const *costs = (const SimCost *const *)p.costs;
  ck_assert_msg (sim_time_stages (&pipeline, costs, wanted, &n_steps, &error), "seed %d: %s", _i,
                 error ? error->message : "");
  ck_assert_msg (sim_passes_run (&pipeline, costs, NULL, &found), "seed %d", _i);
  ck_assert_msg (sim_passes_run (&pipeline, costs, traces, &again), "seed %d", _i);
  ck_assert_msg (found.step_ns == wanted[0]->step_ns && found.n_steps == n_steps,
                 "seed %d: %" G_GINT64_FORMAT " ns after %u steps, not %" G_GINT64_FORMAT
                 " after %u",
                 _i, found.step_ns, found.n_steps, wanted[0]->step_ns, n_steps);
  ck_assert_int_eq (again.step_ns, found.step_ns);
  for (guint i = 0; i < p.n; i++)
    {
      ck_assert_msg (are_alike (traces[i], wanted[i]), "seed %d, stage %u", _i, i);
      plan_trace_free (traces[i]);
      plan_trace_free (wanted[i]);
    }
}
END_TEST

/* Whether an op of a brief schedule (echo.h) is that of the whole one in all but the rows of
 * activations among its operands. */
static gboolean
is_alike (const PlanCursor *a, const PlanOp *x, const PlanCursor *b, const PlanOp *y)
{
  gboolean ok = x->kind == y->kind && x->stream == y->stream && x->group == y->group
                && x->manner == y->manner && x->graph == y->graph && x->n_waits == y->n_waits
                && memcmp (x->dims, y->dims, sizeof x->dims) == 0
                && (x->record.array < 0) == (y->record.array < 0)
                && (x->record.array < 0
                    || plan_cursor_event (a, &x->record) == plan_cursor_event (b, &y->record));
  for (guint i = 0; ok && i < x->n_waits; i++)
    ok = plan_cursor_event (a, &x->waits[i]) == plan_cursor_event (b, &y->waits[i]);
  for (guint i = 0; ok && i < plan_op_n_refs (x->kind); i++)
    ok = x->refs[i].array == y->refs[i].array
         && (x->refs[i].array < 0
             || plan_cursor_at (a, &x->refs[i]) == plan_cursor_at (b, &y->refs[i]));
  return ok;
}

/* Checks that a brief schedule has the ops of the whole one, with the same costs, and no more
 * nodes. */
static void
compare_schedules (const PlanSchedule *brief, const SimCost *brief_cost, const PlanSchedule *whole,
                   const SimCost *cost, int seed)
{
  ck_assert_uint_le (plan_schedule_n_nodes (brief), plan_schedule_n_nodes (whole));
  ck_assert_uint_eq (plan_meter_peak_bytes (brief, 512), plan_meter_peak_bytes (whole, 512));
  ck_assert_uint_eq (plan_meter_resting_bytes (brief, 512), plan_meter_resting_bytes (whole, 512));
  for (PlanSection section = 0; section < PLAN_N_SECTIONS; section++)
    {
      PlanCursor a, b;
      const PlanOp *x, *y;
      plan_cursor_start (&a, brief, section);
      plan_cursor_start (&b, whole, section);
      do
        {
          x = plan_cursor_next (&a), y = plan_cursor_next (&b);
          ck_assert_msg (!x == !y && (!x || is_alike (&a, x, &b, y)),
                         "seed %d, node %u is not node %u of the brief schedule", seed, b.node,
                         a.node);
          ck_assert (
              !x
              || (sim_cost_ns (brief_cost, a.node) == sim_cost_ns (cost, b.node)
                  && sim_cost_launch_ns (brief_cost, a.node) == sim_cost_launch_ns (cost, b.node)));
        }
      while (x);
    }
}

/* A brief schedule, in which passes are echoes of earlier ones, is op by op the whole one, in which
 * they are written out, and its step takes as long. */
START_TEST (echoes_are_what_is_written_out)
{
  g_auto (Pipeline) p = { 0 };
  PlanSchedule *schedules[MOST_STAGES];
  SimCost *costs[MOST_STAGES];
  guint n_steps[2];
  pipeline_init (&p, (guint)_i, _i % 3 > 0);
  for (guint i = 0; i < p.n; i++)
    {
      schedules[i] = plan_lower_brief (p.of, plan_schedule_rank (p.schedules[i]));
      const SimCostInput input = sim_cost_input (p.of, schedules[i]);
      costs[i] = sim_cost_new (&input, NULL);
      compare_schedules (schedules[i], costs[i], p.schedules[i], p.costs[i], _i);
    }
  const gboolean drains
      = p.of->plan.value[PLAN_VPP] == 1 && p.of->stack->pipeline.trades != PLAN_TRADES_ON_DEVICE;
  const SimPipeline brief = { (const PlanSchedule *const *)schedules, p.n };
  const SimPipeline whole = { (const PlanSchedule *const *)p.schedules, p.n };
  ck_assert_int_eq (
      sim_measure_stages_step (&brief, (const SimCost *const *)costs, drains, &n_steps[0]),
      sim_measure_stages_step (&whole, (const SimCost *const *)p.costs, drains, &n_steps[1]));
  ck_assert_uint_eq (n_steps[0], n_steps[1]);
  for (guint i = 0; i < p.n; i++)
    {
      plan_schedule_free (schedules[i]);
      sim_cost_free (costs[i]);
    }
}
END_TEST

int
main (void)
{
  Suite *suite = suite_create ("prop-interleaved");
  TCase *tcase = tcase_create ("random");
  tcase_set_timeout (tcase, 1800);
  tcase_add_test (tcase, the_oracle_knows_its_numbers);
  tcase_add_loop_test (tcase, the_closed_form_holds, 0, 63);
  test_add_share (tcase, passes_come_in_the_order_that_is_described, 60);
  tcase_add_test (tcase, a_smaller_last_group_comes_last);
  tcase_add_test (tcase, a_smaller_last_group_holds_more_logits);
  test_add_share (tcase, every_parameter_is_on_one_stage, 40);
  test_add_share (tcase, a_step_takes_what_stages_side_by_side_do, 60);
  test_add_share (tcase, skipped_passes_change_nothing, 100);
  test_add_share (tcase, echoes_are_what_is_written_out, 100);
  suite_add_tcase (suite, tcase);
  SRunner *runner = srunner_create (suite);
  srunner_run_all (runner, CK_ENV);
  const int failed = srunner_ntests_failed (runner);
  srunner_free (runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
