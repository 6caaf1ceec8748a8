/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/run/bench.h"

#include "advise/adjustments.h"
#include "advise/timings.h"
#include "cli/io/commands.h"
#include "cli/io/context.h"
#include "cli/io/options.h"
#include "cli/io/output.h"
#include "cli/io/watch.h"
#include "cli/run/backend.h"
#include "cli/run/ranks.h"
#include "db/transfer.h"
#include "exec/bench/bench.h"
#include "exec/comm/placement.h"
#include "exec/probe/probe.h"
#include "exec/walk/stop.h"
#include "planner/base/error.h"
#include "planner/base/text.h"
#include "planner/base/units.h"
#include "sim/cost/cost.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_SECONDS 60
#define TIMEOUT_S 600           /* for ranks that do not come, as in a run */
#define COLLECTIVE "collective" /* the class of ops that need several ranks */
#define SHOW_EVERY_US (G_USEC_PER_SEC / 5)

/* Where the requested time is too short to repeat every op often enough, the command may take up to
 * this many times as long. */
#define PATIENCE 3

/* Ranks that compute for less than this share of the time share the processors with other
 * programs. */
#define QUIET 0.9

typedef struct
{
  char *ranks, *threads, *cluster, *comm, *backend, *only, *seconds, *memory, *format, *db;
  gboolean is_dry;
  CliAskOptions asked;
} Options;

static void
options_clear (Options *self)
{
  char **const texts[]
      = { &self->ranks, &self->threads, &self->cluster, &self->comm,   &self->backend,
          &self->only,  &self->seconds, &self->memory,  &self->format, &self->db };
  for (guint i = 0; i < G_N_ELEMENTS (texts); i++)
    g_clear_pointer (texts[i], g_free);
  cli_ask_options_clear (&self->asked);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Options, options_clear)

typedef struct
{
  ExecComm *comm; /* this process's rank under a launcher; NULL: ranks are threads */
  const char *comm_name;
  gboolean shares; /* ranks share a GPU */
  ExecPlacement *placement;
  guint ranks;
  gint64 threads; /* of each rank on processors */
  gint64 seconds, begin_us;
  guint64 max_bytes;
  CliFormat format;
  PlanCluster *cluster;
  GArray *ops;      /* ExecBenchOp */
  GArray *times;    /* ExecBenchTimes of the ops that were timed so far, in order */
  GArray *refusals; /* ExecBenchRefusal */
  ExecBenchFrame frame;
  const SimAdjustments *adjustments; /* NULL: none */
  gboolean failed_together; /* every rank has the same error, so none must abort the others */
} Bench;

static void
bench_clear (Bench *self)
{
  exec_bench_frame_clear (&self->frame);
  g_clear_pointer (&self->placement, exec_placement_free);
  g_clear_pointer (&self->cluster, plan_cluster_free);
  g_clear_pointer (&self->ops, g_array_unref);
  g_clear_pointer (&self->times, g_array_unref);
  g_clear_pointer (&self->refusals, g_array_unref);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Bench, bench_clear)

static gboolean
is_interrupted (void)
{
  return exec_stop_is_asked () || cli_watch_is_interrupted ();
}

static const ExecBenchOp *
op_at (const Bench *self, guint i)
{
  return &g_array_index (self->ops, ExecBenchOp, i);
}

static const ExecBenchTimes *
times_at (const Bench *self, guint i)
{
  return &g_array_index (self->times, ExecBenchTimes, i);
}

static guint
n_timed (const Bench *self)
{
  guint n = 0;
  for (guint i = 0; i < self->times->len; i++)
    n += times_at (self, i)->n > 0;
  return n;
}

static gboolean
is_root (const Bench *self)
{
  return !self->comm || self->comm->rank == 0;
}

/* --- which ops are timed ------------------------------------------------------------------ */

static const char *
class_of (const ExecBenchOp *op)
{
  return plan_cost_name (plan_op_cost (op->op.kind));
}

/* The names of the classes that ops belong to, each once, ended by NULL; the caller frees the
 * array. */
static GPtrArray *
list_classes (const GArray *ops)
{
  GPtrArray *names = g_ptr_array_new ();
  for (guint i = 0; i < ops->len; i++)
    {
      const char *name = class_of (&g_array_index (ops, ExecBenchOp, i));
      if (!g_ptr_array_find_with_equal_func (names, name, g_str_equal, NULL))
        g_ptr_array_add (names, (gpointer)name);
    }
  g_ptr_array_add (names, NULL);
  return names;
}

/* Keeps the ops of the classes named by --only. */
static gboolean
choose (GArray *ops, const char *only, GError **error)
{
  if (ops->len == 0)
    {
      g_set_error_literal (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                           "--memory: no op's operands take as little: try 1 MiB");
      return FALSE;
    }
  g_auto (GStrv) wanted = only ? g_strsplit (only, ",", -1) : NULL;
  g_autoptr (GPtrArray) known = list_classes (ops);
  if (!g_strv_contains ((const char *const *)known->pdata, COLLECTIVE))
    g_ptr_array_insert (known, 0, (gpointer)COLLECTIVE);
  for (char **name = wanted; name && *name; name++)
    if (!g_strv_contains ((const char *const *)known->pdata, *name))
      {
        g_autofree char *hint = plan_text_suggest (*name, (const char *const *)known->pdata);
        g_autofree char *shown = plan_text_quote (*name);
        g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID, "--only: no class is called %s; %s",
                     shown, hint);
        return FALSE;
      }
  for (guint i = ops->len; wanted && i-- > 0;)
    if (!g_strv_contains ((const char *const *)wanted,
                          class_of (&g_array_index (ops, ExecBenchOp, i))))
      g_array_remove_index (ops, i);
  if (ops->len > 0)
    return TRUE;
  g_set_error_literal (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                       "--only " COLLECTIVE ": one rank has none: give --ranks N");
  return FALSE;
}

/* Chooses the communicator: the backend's own one for launched ranks and for threads with a GPU
 * each; else shared memory. */
static gboolean
choose_comm (Bench *self, const char *wanted, GError **error)
{
  const char *processes = cli_backend.process_comm;
  const gboolean is_launched = cli_backend.is_launched ();
  const gboolean can_join = is_launched || cli_backend.join;
  self->comm_name = wanted                                         ? wanted
                    : can_join && (is_launched || self->ranks > 1) ? processes
                                                                   : "threads";
  if (g_str_equal (self->comm_name, processes)
          ? can_join
          : !is_launched && g_str_equal (self->comm_name, "threads"))
    return TRUE;
  g_autofree char *shown = plan_text_quote (self->comm_name);
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
               "--comm: %s does not join these ranks: it must be %s", shown,
               is_launched ? processes
               : can_join  ? "nccl, with a GPU for each, or threads, which share one"
                           : "threads");
  return FALSE;
}

static gboolean
open_ranks (Bench *self, const Options *options, GError **error)
{
  const char *ranks = options->ranks;
  gint64 n = 1;
  if (ranks && !plan_units_parse_int (ranks, "--ranks", 1, 4096, &n, error))
    return FALSE;
  self->ranks = (guint)n;
  self->placement = exec_placement_new_local (self->ranks);
  if (!choose_comm (self, options->comm, error))
    return FALSE;
  if (!cli_backend.is_launched ())
    return ranks || cli_ranks_check_launcher (cli_backend.process_comm, error);
  if (!(self->comm = cli_backend.open_process (TIMEOUT_S, error)))
    return FALSE;
  if (ranks && n != self->comm->ranks)
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                   "--ranks %" G_GINT64_FORMAT ": the launcher started %u", n, self->comm->ranks);
      return FALSE;
    }
  self->ranks = self->comm->ranks;
  exec_placement_free (self->placement);
  self->comm->placement = self->placement = exec_placement_gather (self->comm, error);
  return self->placement != NULL;
}

/* Refuses a cluster with other GPUs than this machine's, as times are stored by the device's
 * name. */
static gboolean
check_device (const PlanCluster *said, GError **error)
{
  g_autoptr (PlanCluster) here = cli_backend.describe_machine (1, 1, 0, FALSE, error);
  if (!here || g_str_equal (here->device_name, said->device_name))
    return here != NULL;
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
               "--cluster %s: its GPUs are %s, and those of this machine, which are timed here, %s",
               said->name, said->device_name, here->device_name);
  return FALSE;
}

/* Describes the cluster: as --cluster says, or as machines like this one. */
static PlanCluster *
describe (const Bench *self, const Options *options, GError **error)
{
  const gboolean is_gpu = cli_backend.device == PLAN_DEVICE_GPU;
  if (!options->cluster)
    return cli_ranks_describe (self->ranks, self->placement, self->shares, self->threads, error);
  g_autoptr (PlanCluster) cluster = cli_cluster_new (options->cluster, options->db, error);
  if (!cluster || !exec_placement_check (self->placement, cluster, error)
      || (is_gpu && cluster->kind == PLAN_DEVICE_GPU && !options->is_dry
          && !check_device (cluster, error)))
    return NULL;
  if (self->threads > 0)
    exec_probe_set_threads (cluster, self->threads);
  if (cluster->kind == cli_backend.device)
    return g_steal_pointer (&cluster);
  if (is_gpu)
    g_set_error (error, PLAN_ERROR, PLAN_ERROR_INVALID,
                 "--cluster %s: its devices are no GPUs, which --backend cuda times",
                 options->cluster);
  else
    g_set_error (
        error, PLAN_ERROR, PLAN_ERROR_INVALID,
        "--cluster %s: its devices are not this machine's processors, which are timed here: "
        "begin with what fsdplan show --cluster local-cpu:%" G_GINT64_FORMAT " --format=ini prints",
        options->cluster, cluster->devices_per_node);
  return NULL;
}

/* Drops the ops that the device refuses. Without a device, in a dry run, none is known to be
 * refused. */
static gboolean
refuse_ops (Bench *self, gboolean is_dry, GError **error)
{
  GArray *ops = self->ops;
  guint n = 0;
  if (!cli_backend.kernels->open (is_dry ? NULL : error))
    return is_dry;
  for (guint i = 0; i < ops->len; i++)
    {
      g_autoptr (GError) why = NULL;
      const ExecBenchOp op = g_array_index (ops, ExecBenchOp, i);
      if (exec_bench_check (&self->frame, &op, &why))
        g_array_index (ops, ExecBenchOp, n++) = op;
      else
        exec_bench_refuse (self->refusals, why->message, 1);
    }
  g_array_set_size (ops, n);
  return TRUE;
}

static gboolean
read_adjustments (Bench *self, const char *db, GError **error)
{
  g_autoptr (GError) cause = NULL;
  self->adjustments = advise_adjustments (NULL, db, &cause);
  if (!cause)
    return TRUE;
  g_propagate_error (error, g_steal_pointer (&cause));
  return FALSE;
}

static gboolean
parse (Bench *self, const Options *options, GError **error)
{
  const char *own = cli_backend.kernels->name;
  self->seconds = DEFAULT_SECONDS;
  if (options->backend && !g_str_equal (options->backend, own))
    {
      g_set_error (error, PLAN_ERROR, PLAN_ERROR_UNSUPPORTED, "--backend: this program is %s", own);
      return FALSE;
    }
  return cli_format_parse (options->format, &self->format, error)
         && cli_ranks_parse_threads (options->threads, &self->threads, error)
         && (!options->seconds
             || plan_units_parse_int (options->seconds, "--seconds", 1, 86400, &self->seconds,
                                      error))
         && (!options->memory
             || plan_units_parse_size (options->memory, "--memory", &self->max_bytes, error));
}

static gboolean
prepare (Bench *self, const Options *options, GError **error)
{
  if (!parse (self, options, error) || !open_ranks (self, options, error))
    return FALSE;
  const gboolean is_joined = g_str_equal (self->comm_name, cli_backend.process_comm);
  if (is_joined && !self->comm && cli_backend.before_join)
    cli_backend.before_join ();
  self->shares = cli_backend.device == PLAN_DEVICE_GPU && self->ranks > 1 && !is_joined;
  self->times = g_array_new (FALSE, FALSE, sizeof (ExecBenchTimes));
  self->refusals = exec_bench_refusals_new ();
  if (!(self->cluster = describe (self, options, error))
      || !(self->ops = exec_bench_ops (self->cluster, self->max_bytes, self->refusals, error))
      || !choose (self->ops, options->only, error)
      || !exec_bench_frame_init (&self->frame, self->cluster, cli_backend.kernels, error)
      || !refuse_ops (self, options->is_dry, error))
    return FALSE;
  if (is_joined && !self->comm)
    self->frame.job.join = cli_backend.join;
  self->frame.job.timeout_s = TIMEOUT_S;
  return read_adjustments (self, options->db, error);
}

/* How many batches of an op are timed. */
static guint
repeats_of (const Bench *self, guint i)
{
  return exec_bench_repeats (op_at (self, i), 1e9 * (double)self->seconds / (double)self->ops->len);
}

/* --- rows --------------------------------------------------------------------------------- */

static SimTiming
timing_of (const Bench *self, guint i)
{
  const ExecBenchOp *op = op_at (self, i);
  SimTiming timing = { .kind = op->op.kind, .ranks = op->ranks, .nodes = op->nodes };
  memcpy (timing.dims, op->op.dims, sizeof timing.dims);
  for (guint r = 0; r < PLAN_MAX_REFS; r++)
    timing.dtype[r]
        = op->op.refs[r].array < 0 || r >= plan_op_n_refs (op->op.kind) ? -1 : (gint8)op->dtype[r];
  return timing;
}

/* Bytes that an op reads and writes; for a collective nccl-tests' size: all bytes that are gathered
 * or summed. */
static double
bytes_of (const Bench *self, guint i)
{
  const ExecBenchOp *op = op_at (self, i);
  double bytes = 0;
  if (plan_op_class (op->op.kind) == PLAN_CLASS_COLLECTIVE)
    return (double)plan_dtype_bytes (op->dtype[0], (guint64)op->op.dims[0])
           * (op->op.kind == PLAN_OP_ALL_REDUCE ? 1 : op->ranks);
  for (guint r = 0; r < plan_op_n_refs (op->op.kind); r++)
    if (op->op.refs[r].array >= 0)
      bytes += (double)plan_dtype_bytes (op->dtype[r], plan_op_ref_elements (&op->op, r, op->ranks))
               * (plan_op_ref_access (op->op.kind, r) == 'u' ? 2 : 1);
  return bytes;
}

/* The factor by which nccl-tests turns algorithm bandwidth into bus bandwidth. */
static double
bus_factor (PlanOpKind kind, guint ranks)
{
  return (double)(ranks - 1) / (double)ranks * (kind == PLAN_OP_ALL_REDUCE ? 2 : 1);
}

/* The time that the cost model gives for an op that was not timed; 0 where it has none. */
static gint64
model_ns (const Bench *self, guint i)
{
  const PlanCase *of = self->frame.of;
  ExecBenchOp alone = *op_at (self, i);
  alone.batch = 1;
  alone.fillers = 0;
  g_autoptr (PlanSchedule) schedule = exec_bench_schedule (&alone, 0, self->ranks, 1);
  const SimParams params = advise_params (self->adjustments, of->cluster, of->stack);
  SimCostInput input = sim_cost_input (of, schedule);
  input.params = &params;
  g_autoptr (SimCost) cost = sim_cost_new (&input, NULL);
  PlanCursor cursor;
  plan_cursor_start (&cursor, schedule, PLAN_SECTION_STEP);
  plan_cursor_next (&cursor);
  return cost ? sim_cost_ns (cost, cursor.node) : 0;
}

/* Adds a number; an empty cell for 0. */
static void
add_positive (CliTable *table, double value)
{
  if (value > 0)
    cli_table_add_real (table, value, 3);
  else
    cli_table_add (table, NULL);
}

static void
add_times (const Bench *self, guint i, CliTable *table)
{
  const ExecBenchTimes *times = times_at (self, i);
  const PlanOp *op = &op_at (self, i)->op;
  const double ns = (double)times->median_ns, bytes = bytes_of (self, i);
  const gboolean is_collective = plan_op_class (op->kind) == PLAN_CLASS_COLLECTIVE;
  cli_table_add_int (table, times->n);
  cli_table_add_real (table, 1e-3 * ns, 3);
  cli_table_add_real (table, 1e-3 * (double)times->q1_ns, 3);
  cli_table_add_real (table, 1e-3 * (double)times->q3_ns, 3);
  add_positive (table, 1e-3 * (double)model_ns (self, i));
  add_positive (table, plan_op_flops (op) / ns);
  add_positive (table, bytes / ns);
  add_positive (table,
                is_collective ? bytes / ns * bus_factor (op->kind, op_at (self, i)->ranks) : 0);
}

static void
add_op (const Bench *self, guint i, gboolean is_dry, CliTable *table)
{
  const SimTiming timing = timing_of (self, i);
  g_autofree char *shape = sim_timing_print_shape (&timing);
  g_autofree char *format = sim_timing_print_format (&timing);
  cli_table_add (table, class_of (op_at (self, i)));
  cli_table_add (table, plan_op_name (timing.kind));
  cli_table_add (table, shape);
  cli_table_add (table, format);
  cli_table_add_int (table, timing.ranks);
  if (is_dry)
    cli_table_add_int (table, repeats_of (self, i) * op_at (self, i)->batch);
  else
    add_times (self, i, table);
}

/* Prints the ops class by class, each class from small to large. */
static void
print (const Bench *self, gboolean is_dry)
{
  static const CliColumn columns[]
      = { { "class", FALSE },  { "op", FALSE },      { "shape", FALSE },    { "format", FALSE },
          { "ranks", TRUE },   { "repeats", TRUE },  { "median_us", TRUE }, { "q1_us", TRUE },
          { "q3_us", TRUE },   { "model_us", TRUE }, { "gflop_s", TRUE },   { "gb_s", TRUE },
          { "bus_gb_s", TRUE } };
  g_autoptr (CliTable) table = cli_table_new (columns, is_dry ? 6 : G_N_ELEMENTS (columns));
  g_autoptr (GPtrArray) classes = list_classes (self->ops);
  const guint n = is_dry ? self->ops->len : self->times->len;
  for (guint c = 0; classes->pdata[c]; c++)
    for (guint i = 0; i < n; i++)
      if (g_str_equal (class_of (op_at (self, i)), classes->pdata[c])
          && (is_dry || times_at (self, i)->n > 0))
        add_op (self, i, is_dry, table);
  cli_table_print (table, self->format);
}

static void
add_row (const Bench *self, guint i, const char *created, const char *library, DbTable *rows)
{
  const ExecBenchTimes *times = times_at (self, i);
  const SimTiming timing = timing_of (self, i);
  const gboolean is_collective = plan_op_class (timing.kind) == PLAN_CLASS_COLLECTIVE;
  const char *comm = is_collective || self->shares ? self->comm_name : "self";
  g_autofree char *uid = g_uuid_string_random ();
  g_autofree char *shape = sim_timing_print_shape (&timing);
  g_autofree char *format = sim_timing_print_format (&timing);
  g_autofree char *ranks = g_strdup_printf ("%u", timing.ranks);
  g_autofree char *machine = advise_timings_machine (self->cluster, library, timing.nodes > 1);
  g_autofree char *median = g_strdup_printf ("%" G_GINT64_FORMAT, times->median_ns);
  g_autofree char *spread = g_strdup_printf ("%" G_GINT64_FORMAT, times->p90_ns - times->p10_ns);
  g_autofree char *samples = g_strdup_printf ("%u", times->n);
  const char *const cells[][2] = { { "uid", uid },
                                   { "created", created },
                                   { "program_version", PACKAGE_VERSION },
                                   { "host", g_get_host_name () },
                                   { "machine", machine },
                                   { "backend", cli_backend.kernels->name },
                                   { "comm", comm },
                                   { "ranks", ranks },
                                   { "op", plan_op_name (timing.kind) },
                                   { "shape", shape },
                                   { "format", format },
                                   { "median_ns", median },
                                   { "spread_ns", spread },
                                   { "samples", samples } };
  db_table_add (rows, cells, G_N_ELEMENTS (cells), i + 1);
}

/* Stores all times, or none if one cannot be stored. */
static gboolean
keep (const Bench *self, const char *db, GError **error)
{
  g_autoptr (GDateTime) now = g_date_time_new_now_utc ();
  g_autofree char *created = g_date_time_format (now, "%Y-%m-%dT%H:%M:%SZ");
  g_autofree char *library = cli_backend.kernels->describe ();
  g_autoptr (GPtrArray) tables = g_ptr_array_new_with_free_func ((GDestroyNotify)db_table_free);
  DbTable *rows = db_table_new (DB_KIND_OPS);
  DbImport done;
  g_ptr_array_add (tables, rows);
  for (guint i = 0; i < self->times->len; i++)
    if (times_at (self, i)->n > 0)
      add_row (self, i, created, library, rows);
  const DbSource source = { .origin = "bench", .tables = tables };
  g_autoptr (DbStore) store = db_store_open (db, error);
  return store && db_store_import (store, &source, 1, FALSE, &done, error);
}

/* --- timing ------------------------------------------------------------------------------- */

static void
show_progress (const Bench *self, guint i)
{
  const double spent = 1e-6 * (double)(g_get_monotonic_time () - self->begin_us);
  fprintf (stderr, "\rbench: %u of %u ops, %.0f s, now %s \033[K", i, self->ops->len, spent,
           plan_op_name (op_at (self, i)->op.kind));
}

/* Makes all ranks stop together, when one of them was interrupted or has used up its time. */
static gboolean
should_stop (const Bench *self, ExecComm *comm, gboolean *out_stop, GError **error)
{
  float votes
      = is_interrupted ()
        || g_get_monotonic_time () - self->begin_us > PATIENCE * self->seconds * G_USEC_PER_SEC;
  if (!comm->ops->all_reduce (comm, &votes, 1, PLAN_DTYPE_FP32, NULL, error))
    return FALSE;
  *out_stop = votes > 0;
  return TRUE;
}

static gboolean
time_op (Bench *self, guint i, ExecComm *comm, GError **error)
{
  ExecBenchTimes times;
  g_autofree char *why = NULL;
  if (!exec_bench_run (&self->frame, op_at (self, i), repeats_of (self, i), comm, &times, &why,
                       error))
    {
      g_prefix_error (error, "%s: ", plan_op_name (op_at (self, i)->op.kind));
      return FALSE;
    }
  if (comm->rank != 0)
    return TRUE;
  if (why)
    exec_bench_refuse (self->refusals, why, 1);
  g_array_append_val (self->times, times);
  return TRUE;
}

/* What each rank does: times all ops. The times kept are rank 0's. */
static gboolean
time_ops (ExecComm *comm, gpointer user_data, GError **error)
{
  Bench *self = user_data;
  const gboolean is_shown = comm->rank == 0 && isatty (STDERR_FILENO);
  gint64 shown_us = 0;
  for (guint i = 0; i < self->ops->len; i++)
    {
      gboolean stop;
      if (!should_stop (self, comm, &stop, error))
        return FALSE;
      if (stop)
        break;
      if (is_shown && g_get_monotonic_time () - shown_us > SHOW_EVERY_US)
        {
          show_progress (self, i);
          shown_us = g_get_monotonic_time ();
        }
      if (!time_op (self, i, comm, error))
        return FALSE;
    }
  if (is_shown)
    fputs ("\r\033[K", stderr);
  return TRUE;
}

static gboolean
time_all (Bench *self, GError **error)
{
  self->begin_us = g_get_monotonic_time ();
  return self->comm ? exec_bench_on_rank (&self->frame, self->comm, time_ops, self, error)
                    : exec_bench_on_threads (&self->frame, self->ranks, time_ops, self, error);
}

/* Warns when other programs used the processors: then ranks computed for less than the time that
 * passed. */
static void
warn_if_busy (const Bench *self)
{
  double wall = 0, own = 0;
  for (guint i = 0; i < self->times->len; i++)
    {
      wall += (double)times_at (self, i)->wall_ns;
      own += (double)times_at (self, i)->own_ns;
    }
  if (own < QUIET * wall)
    fprintf (stderr,
             "fsdplan: other work took %.0f %% of the processors meanwhile; ops that compute are "
             "given as long as they computed, collectives as long as they took\n",
             100 - 100 * own / wall);
}

static void
tell_refusals (const Bench *self)
{
  for (guint i = 0; i < self->refusals->len; i++)
    {
      const ExecBenchRefusal *refusal = &g_array_index (self->refusals, ExecBenchRefusal, i);
      if (refusal->n > 0)
        fprintf (stderr, "fsdplan: %u ops are not timed: %s\n", refusal->n, refusal->why);
      else
        fprintf (stderr, "fsdplan: not timed: %s\n", refusal->why);
    }
}

/* Prints and stores what was timed, also after an interruption; the command then fails
 * nevertheless. */
static gboolean
report (const Bench *self, const char *db, GError **error)
{
  const guint n = n_timed (self);
  print (self, FALSE);
  tell_refusals (self);
  warn_if_busy (self);
  if (n > 0 && !keep (self, db, error))
    {
      g_prefix_error (error, "nothing was kept: ");
      return FALSE;
    }
  if (self->times->len == self->ops->len)
    return TRUE;
  if (!is_interrupted ())
    {
      fprintf (stderr,
               "fsdplan: %u of %u ops were timed in %d times the %" G_GINT64_FORMAT
               " seconds meant for it: more --seconds time the largest, too\n",
               n, self->ops->len, PATIENCE, self->seconds);
      return TRUE;
    }
  g_set_error (error, PLAN_ERROR, PLAN_ERROR_STOPPED,
               "interrupted: the %u ops that were timed until then are kept", n);
  return FALSE;
}

static gboolean
bench (Bench *self, const Options *options, GError **error)
{
  const gboolean can_begin = prepare (self, options, error);
  if (!can_begin && self->comm && !self->comm->placement
      && g_error_matches (*error, PLAN_ERROR, PLAN_ERROR_BACKEND))
    return FALSE; /* ranks that have not met cannot vote */
  if (self->comm ? !cli_ranks_vote (self->comm, can_begin, &self->failed_together, error)
                 : !can_begin)
    return FALSE;
  if (options->is_dry)
    {
      if (is_root (self))
        {
          print (self, TRUE);
          tell_refusals (self);
        }
      return TRUE;
    }
  cli_watch_interrupts ();
  exec_stop_watch ();
  if (!time_all (self, error))
    return FALSE;
  return !is_root (self) || report (self, options->db, error);
}

gboolean
cli_bench_briefly (guint ranks, gint64 threads, const char *db, GError **error)
{
  g_auto (Options) options = { .ranks = g_strdup_printf ("%u", ranks),
                               .threads = g_strdup_printf ("%" G_GINT64_FORMAT, threads),
                               .seconds = g_strdup ("2"),
                               .memory = g_strdup ("16MiB"),
                               .db = g_strdup (db) };
  g_auto (Bench) self = { 0 };
  return prepare (&self, &options, error) && time_all (&self, error) && keep (&self, db, error);
}

static gboolean
ask (const Options *options, GError **error)
{
  g_autoptr (PlanCluster) cluster = NULL;
  CliFormat format;
  return cli_format_parse (options->format, &format, error)
         && (!options->cluster
             || (cluster = cli_cluster_new (options->cluster, options->db, error)))
         && cli_ask_workspaces (&options->asked, cluster, options->is_dry, format, options->db,
                                error);
}

static CliContext *
context_new (Options *options)
{
  const GOptionEntry entries[] = {
    { "ranks", 0, 0, G_OPTION_ARG_STRING, &options->ranks,
      "ranks at work side by side; by default as many as a launcher started, or 1", "N" },
    { "threads", 0, 0, G_OPTION_ARG_STRING, &options->threads,
      "threads that compute in each rank on processors; its share of the cores by default", "N" },
    { "cluster", 0, 0, G_OPTION_ARG_STRING, &options->cluster,
      "the cluster that the ranks are on, with the network between its nodes; machines like "
      "this one by default",
      "NAME:NODES|FILE" },
    { "backend", 0, 0, G_OPTION_ARG_STRING, &options->backend,
      "what computes: processors, or GPUs in a build with CUDA; cpu by default", "cpu|cuda" },
    { "comm", 0, 0, G_OPTION_ARG_STRING, &options->comm,
      "what joins the ranks: of GPUs nccl, one each, or threads, which share one; of processors "
      "threads, or mpi under a launcher",
      "threads|mpi|nccl" },
    { "only", 0, 0, G_OPTION_ARG_STRING, &options->only,
      "only such ops: product, attention, collective, or how they move memory, as copy, norm, "
      "activation, optimizer",
      "CLASS,…" },
    { "seconds", 0, 0, G_OPTION_ARG_STRING, &options->seconds,
      "time meant for all of it; 60 by default", "N" },
    { "memory", 0, 0, G_OPTION_ARG_STRING, &options->memory,
      "what an op's operands may take; 256 MiB by default, of a GPU an eighth of its memory",
      "SIZE" },
    { "dry-run", 0, 0, G_OPTION_ARG_NONE, &options->is_dry, "only show what would be timed", NULL },
    { "db", 0, 0, G_OPTION_ARG_STRING, &options->db,
      "the store; $XDG_DATA_HOME/fsdplan/fsdplan.db by default", "FILE" },
    { "format", 0, 0, G_OPTION_ARG_STRING, &options->format, "how to print it", CLI_FORMATS },
    G_OPTION_ENTRY_NULL,
  };
  CliContext *context
      = cli_context_new (NULL, "time this machine's ops one by one, and keep that for predictions");
  cli_context_add (context, entries);
  cli_ask_options_add (&options->asked, context);
  cli_context_describe (
      context,
      "Each op is a schedule of its own, walked as a plan's is. Times are medians, with quartiles\n"
      "beside them, of repeats after a warm-up; model_us is what predictions take where\n"
      "nothing is timed, bus_gb_s nccl-tests' bus bandwidth. Between several nodes collectives\n"
      "are timed over all ranks, inside a node, and over one rank of each; nodes=N beside the\n"
      "sizes says how many they reached. Predictions for local-cpu take the newest row of each\n"
      "op and size, and what lies between sizes; those for N ranks are best served by\n"
      "--ranks N, those for several nodes by a launcher that starts ranks there.\n"
      "On a GPU times are the device's own, of ops issued in batches while it is busy, with\n"
      "operands that its caches do not hold. Plans with stack=native take them for every cluster\n"
      "of such GPUs; those of ranks that share one, for as many ranks that do. What the device\n"
      "has no format or memory for is counted.\n"
      "With --workspaces nothing is timed and no GPU is needed: cuDNN is asked how much\n"
      "memory attention wants on GPUs; predictions and schedules for such GPUs take what\n"
      "the newest version said of their shapes.");
  return context;
}

int
cli_bench (int argc, char **argv, CliTraining *out_process, GError **error)
{
  g_auto (Options) options = { 0 };
  g_auto (Bench) self = { 0 };
  g_autoptr (CliContext) context = context_new (&options);
  if (!cli_context_parse (context, &argc, &argv, error))
    return *error ? CLI_FAILED : CLI_DONE;
  const gboolean ok
      = options.asked.is_given ? ask (&options, error) : bench (&self, &options, error);
  out_process->comm = self.comm;
  out_process->placement = g_steal_pointer (&self.placement);
  out_process->failed_together = self.failed_together;
  return ok ? CLI_DONE : CLI_FAILED;
}
