/* The walk of one rank, as its files share it: walk.c runs ops, walk-params.c those on quantised
 * parameters, walk-state.c knows where the run's state lies, exec.c makes steps of them. */
#pragma once
#include "exec/device.h"
#include "exec/walk/exec.h"
#include "exec/walk/part.h"
#include "exec/walk/walk-graph.h"
#include "planner/schedule/arena.h"
#include "planner/schedule/meter.h"
G_BEGIN_DECLS

typedef struct
{
  guint8 *bytes; /* NULL: not taken */
  gboolean is_written;
  /* Of weights and what is made of them only: optimizer updates seen, and whose they are. */
  gint64 version, unit;
  guint64 from, to; /* elements that are that new: a rank writes its part, a gather the others' */
} ExecTag;

/* When something happened, by numbers that the device knows times for. */
typedef struct
{
  guint32 node;
  gint32 unit;
  guint start, end;
} ExecSpan;

/* Consecutive ops of a trace that have one span between them, and no others any; `last` 0: every op
 * has its own. */
typedef struct
{
  guint32 first, last; /* nodes */
  guint start;
} ExecTimed;

typedef struct
{
  guint span; /* number of spans that had been issued before */
  PlanCategory category;
  guint64 live_bytes;
  guint at;
} ExecSample;

/* An event as it was last recorded: on which stream, behind how many of its collectives. */
typedef struct
{
  PlanStream stream;
  guint collectives;
} ExecRecord;

/* This rank's part of a bucket, as its init op said: where it is in the bucket, and what is kept of
 * it. */
typedef struct
{
  PlanBucketKind kind;
  gint64 unit;
  guint64 first, count; /* elements of the bucket */
  gboolean is_owner;    /* of several ranks that hold it, the first */
  float *scales;        /* the device's, of moments in eight bits; else NULL */
  struct
  {
    gboolean exists;
    guint32 buffer;
    PlanDtype dtype;
    guint64 at; /* elements */
  } state[EXEC_N_STATES];
} ExecShard;

typedef struct _ExecWalk ExecWalk;
struct _ExecWalk
{
  const ExecJob *job;
  const PlanCase *of;               /* what the schedule was lowered from */
  ExecComm *comm;                   /* of all ranks */
  ExecComm *group[PLAN_MAX_GROUPS]; /* of the schedule's groups */
  const PlanSchedule *schedule;
  const ExecWalk *trained; /* an evaluation: whose weights it takes; else NULL */
  ExecPart part;
  PlanBuckets buckets;    /* where its layout goes by size */
  PlanArena arena, apart; /* what the plan takes; where buffers lie while accesses are checked */
  float *param_scales; /* the device's, of quantised parameters, by layer and role: on every rank */
  float *moment_scales; /* the device's, shard after shard */
  struct
  {
    gint32 weights, columns, scales;
  } quantised; /* arrays of them; -1: none */
  struct
  {
    gint32 scales, history, amax;
  } sites;            /* arrays of all layers'; -1: none */
  ExecDevice *device; /* NULL until it is opened */
  ExecTag *tags;
  GArray *shards; /* ExecShard, in init order */
  PlanMeter meter;
  PlanTrace *trace; /* NULL unless this step is recorded */
  ExecTimed timed;
  GArray *spans, *samples;           /* of the step that is recorded: ExecSpan, ExecSample */
  GArray *looks;                     /* ExecLook that are still to come */
  guint collectives[PLAN_N_STREAMS]; /* issued so far */
  guint joined[PLAN_N_STREAMS];      /* of those, how many the compute stream is behind */
  ExecRecord *records;               /* per event id */
  ExecConstants constants;
  gint64 step, n_unsound, micro_batch; /* from 0; of them, not finite; loaded so far in this one */
  gint64 eval_batch;                   /* of an evaluation, from 0 */
  guint next_alloc;                    /* in this section */
  double loss, grad_norm;
  gboolean is_sound, owes_checkpoint; /* the last step was; one was due when a step was not */
  ExecSaving *saving;                 /* a checkpoint that is being written; NULL: none is */
  GPtrArray *checkpoints; /* names of those that are this run's, the newest last; NULL: none yet */
  gint64 most_rows;       /* that went from this rank to the experts of one */
  gint64 collective_ns;   /* of this step, that calls of the communicator took */
  ExecStepGraph kept;
  ExecLook suspect; /* of a gradient that is not a number; its op is NULL: none is */
  gboolean poisons; /* accesses are checked: buffers hold NaN until they are written */
  guint64 room;     /* then, for canaries on either side of a buffer */
};

/* exec/walk/walk.c. A `close` follows every `open`. */
gboolean exec_walk_open (ExecWalk *self, const ExecJob *job, const PlanCase *of,
                         const PlanSchedule *schedule, ExecComm *comm, GError **error);
void exec_walk_close (ExecWalk *self);
gboolean exec_walk_run (ExecWalk *self, PlanSection section, GError **error);

/* On a clock that only goes forward. */
gint64 exec_walk_now_ns (void);

/* The host waits for all that was issued; afterwards state can be read. */
gboolean exec_walk_finish (ExecWalk *self, GError **error);

/* exec/walk/walk-state.c */
gboolean exec_walk_init_shard (ExecWalk *self, const PlanCursor *cursor, const ExecArgs *args,
                               GError **error);
gboolean exec_walk_find_moments (ExecWalk *self, GError **error);
gboolean exec_walk_restore_moments (ExecWalk *self, GError **error);
gboolean exec_walk_init_scales (const ExecWalk *self, const ExecArgs *args, GError **error);

/* The element of an array that a reference means, before pools are taken in turns. */
gint64 exec_walk_unit_of (const PlanCursor *cursor, const PlanRef *ref);

/* exec/walk/walk-params.c */
guint exec_walk_n_param_scales (const ExecWalk *self);
void exec_walk_find_params (ExecWalk *self);
void exec_walk_find_scales (const ExecWalk *self, const PlanCursor *cursor, guint operand,
                            ExecArgs *args);
gboolean exec_walk_run_params (ExecWalk *self, const PlanCursor *cursor, const ExecArgs *args,
                               GError **error);

G_END_DECLS
