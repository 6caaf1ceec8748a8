/* The walk of one rank, shared by its files: walk.c runs ops, walk-params.c ops on quantised
 * parameters, walk-state.c finds the run's state in shards, exec.c runs steps. */
#pragma once
#include "exec/device.h"
#include "exec/walk/exec.h"
#include "exec/walk/part.h"
#include "exec/walk/walk-graph.h"
#include "exec/walk/walk-issue.h"
#include "planner/schedule/arena.h"
#include "planner/schedule/meter.h"
G_BEGIN_DECLS

typedef struct
{
  guint8 *bytes; /* NULL: released */
  gboolean is_written;
  /* Of weights and what is made of them: the unit, and updates that [from, to) have seen. */
  gint64 version, unit;
  guint64 from, to; /* a rank writes its own elements, a gather those of the others */
} ExecTag;

/* This rank's shard of a bucket, as its INIT op says, and the buffers with its state. */
typedef struct
{
  PlanBucketKind kind;
  gint64 unit;
  guint64 first, count, hosted; /* elements of the bucket; so many have moments on the host */
  gboolean is_owner;            /* this rank is the first of those that hold it */
  float *scales;                /* on the device, of moments in eight bits; else NULL */
  struct
  {
    gboolean exists;
    guint32 buffer, host; /* ids: of the device's part; of the host's, if it is offloaded */
    guint64 at;           /* in elements of `buffer` */
    PlanDtype dtype;
  } state[EXEC_N_STATES];
} ExecShard;

struct _ExecWalk
{
  const ExecJob *job;
  const PlanCase *of;               /* what the schedule was lowered from */
  ExecComm *comm;                   /* of all ranks */
  ExecComm *group[PLAN_MAX_GROUPS]; /* of the schedule */
  const PlanSchedule *schedule;
  const ExecWalk *trained; /* of an evaluation: the walk whose weights it takes; else NULL */
  ExecPart part;
  PlanBuckets buckets;    /* buckets of a layout that is cut by size */
  PlanArena arena, apart; /* where buffers lie: as planned; with canaries between them */
  /* On the device: by parameter's layer, role and expert; by shard; by buffer and expert. */
  float *param_scales, *moment_scales, *expert_scales;
  struct
  {
    gint32 weights, columns, scales, unrounded;
  } quantised[PLAN_BUCKET_PART]; /* arrays of the schedule; -1: none */
  struct
  {
    gint32 scales, history, amax, bias, loads; /* `bias` and `loads` are of routers */
  } sites;                                     /* arrays with state of all layers; -1: none */
  ExecDevice *device;                          /* NULL until it is opened */
  ExecTag *tags;
  GArray *shards; /* ExecShard, in the order of INIT ops */
  PlanMeter meter;
  PlanTrace *trace; /* NULL unless this step is recorded */
  ExecTimed timed;
  GArray *spans, *samples;           /* ExecSpan, ExecSample: of the recorded step */
  GArray *looks;                     /* ExecLook: to be looked at once the data is there */
  GArray *held;                      /* ExecHeld: collectives that are not issued yet */
  guint collectives[PLAN_N_STREAMS]; /* issued so far */
  guint joined[PLAN_N_STREAMS];      /* how many of them the compute stream has waited for */
  ExecRecord *records;               /* per event id */
  ExecConstants constants;
  gint64 step, n_unsound;         /* number of this step, from 0; steps that were not sound */
  gint64 micro_batch, eval_batch; /* loaded in this step so far; of an evaluation, from 0 */
  gint64 saved_step;              /* steps done when the last checkpoint was saved, or 0 */
  guint next_alloc;               /* index in this section */
  double loss, grad_norm;
  gboolean is_sound, owes_checkpoint;   /* the last step's loss and norm are finite; one is due */
  ExecSaving *saving;                   /* the checkpoint being written; NULL: none */
  GPtrArray *checkpoints;               /* names of this run's, the newest last; NULL: none yet */
  gint64 rows, dropped_rows, most_rows; /* to experts; dropped there; most to those of one rank */
  gint64 collective_ns;                 /* time of this step inside calls of the communicator */
  ExecStepGraph kept;
  ExecLook suspect; /* a gradient that is not finite; `op` is NULL: none */
  gboolean poisons; /* debugging: buffers hold NaN until they are written */
  guint64 room;     /* bytes of canaries on each side of a buffer */
};

/* exec/walk/walk.c. Every `open` is followed by a `close`, after failures too. */
gboolean exec_walk_open (ExecWalk *self, const ExecJob *job, const PlanCase *of,
                         const PlanSchedule *schedule, ExecComm *comm, GError **error);
void exec_walk_close (ExecWalk *self);
gboolean exec_walk_run (ExecWalk *self, PlanSection section, GError **error);
gint64 exec_walk_now_ns (void); /* on the monotonic clock */

/* The host waits for everything that was issued; only then can state be read. */
gboolean exec_walk_finish (ExecWalk *self, GError **error);

/* exec/walk/walk-load.c, exec/walk/walk-state.c */
gboolean exec_walk_load (ExecWalk *self, const ExecArgs *args, GError **error);
gboolean exec_walk_init_key (const ExecWalk *self, gint64 unit, void *out, GError **error);
gboolean exec_walk_init_shard (ExecWalk *self, const PlanCursor *cursor, const ExecArgs *args,
                               GError **error);
gboolean exec_walk_find_moments (ExecWalk *self, GError **error);
gboolean exec_walk_restore_moments (ExecWalk *self, GError **error);
gboolean exec_walk_init_scales (const ExecWalk *self, const ExecArgs *args, GError **error);
gboolean exec_walk_init_balance (const ExecWalk *self, const ExecArgs *args, GError **error);

/* The unit whose buffer in an array a reference means, before pools are taken in turns. */
gint64 exec_walk_unit_of (const PlanCursor *cursor, const PlanRef *ref);

/* exec/walk/walk-params.c */
guint exec_walk_n_param_scales (const ExecWalk *self);
void exec_walk_find_params (ExecWalk *self);
void exec_walk_find_scales (const ExecWalk *self, const PlanCursor *cursor, guint operand,
                            ExecArgs *args);
gboolean exec_walk_run_params (ExecWalk *self, const PlanCursor *cursor, const ExecArgs *args,
                               GError **error);

G_END_DECLS
