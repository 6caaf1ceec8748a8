/* Parts of PlanStack: in which order a pipeline and the host issue ops. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

/* How layers are dealt out to the stages of a pipeline. */
typedef enum
{
  PLAN_DEAL_EVEN,
  PLAN_DEAL_REST, /* of layers that do not divide the first stages have one more each */
  PLAN_DEAL_COST, /* by their cost */
} PlanDeal;

/* How many micro batches a pipeline needs at least. */
typedef enum
{
  PLAN_FILL_ANY,
  PLAN_FILL_BUT_ONE, /* pp - 1 */
  PLAN_FILL_ALL,     /* pp, unless it is interleaved */
} PlanFill;

/* How two stages trade. */
typedef enum
{
  PLAN_TRADES_TOGETHER,  /* both ways at once; the host waits for it */
  PLAN_TRADES_IN_TURN,   /* one after the other sends */
  PLAN_TRADES_AWAITED,   /* together; compute waits for what a virtual stage sends, too */
  PLAN_TRADES_ON_DEVICE, /* together; compute waits, and the host issues on */
} PlanTrades;

/* When the stages of a pipeline reduce gradients. */
typedef enum
{
  PLAN_STAGES_REDUCE_EACH,    /* beside their last backward pass */
  PLAN_STAGES_REDUCE_ALIGNED, /* later stages only after they have sent the last gradient */
  /* Gradients stay whole up to the last micro batch; then units are reduced one after another.
   * Weights that a forward pass does not free stay up to there, too. */
  PLAN_STAGES_REDUCE_HELD,
} PlanStageReductions;

typedef struct
{
  PlanDeal deal;
  PlanFill fill; /* how many micro batches a pipeline needs */
  PlanTrades trades;
  PlanStageReductions reductions;
} PlanStackPipeline;

/* Classes of ops by what issuing one costs the host, which depends on what the framework does
 * around it. */
typedef enum
{
  PLAN_LAUNCH_KERNEL, /* an element-wise kernel */
  /* A GEMM in a module's forward pass, with its share of the module's own work. */
  PLAN_LAUNCH_PRODUCT,
  PLAN_LAUNCH_QUANTISED_PRODUCT, /* the same, with scales to keep */
  /* A GEMM that reads a gradient: one call of the framework issues a module's two. */
  PLAN_LAUNCH_GRADIENT,
  PLAN_LAUNCH_QUANTISED_GRADIENT,
  PLAN_LAUNCH_ATTENTION,
  PLAN_LAUNCH_COLLECTIVE, /* a bucket's collective: hooks, buffers, events and the call */
  PLAN_N_LAUNCHES
} PlanLaunch;

/* Ops that a framework issues one by one in each pass where a schedule has one op. */
typedef struct
{
  guint8 forward, backward;
} PlanStackOps;

/* What choosing experts and counting rows for them takes; 0: one op, or it is not known. */
typedef struct
{
  PlanStackOps by_softmax, by_sigmoid, fused; /* `by_sigmoid`: with a bias and a scale */
  PlanStackOps groups;                        /* more for groups of experts */
  PlanStackOps counts;                        /* of rows, for an all-to-all exchange */
  PlanStackOps lists;                         /* lists of experts for DeepEP, and back */
} PlanStackRouting;

/* How micro batches come to the device. */
typedef enum
{
  PLAN_LOADS_AHEAD,  /* the host does not wait */
  PLAN_LOADS_PACKED, /* the host waits for the device if documents are packed */
  PLAN_LOADS_WAIT,   /* the host waits for the device */
  PLAN_LOADS_FIRST,  /* it waits, and with a pipeline all are copied before the first pass */
} PlanLoads;

/* NCCL_CTA_POLICY: whether collectives may take processors of the device. */
typedef enum
{
  PLAN_CTA_DEFAULT,
  PLAN_CTA_ZERO,
} PlanCtaPolicy;

/* The host that issues ops. */
typedef struct
{
  gint64 launch_ns[PLAN_N_LAUNCHES]; /* time to issue one op, by class */
  guint8 kernels[PLAN_N_LAUNCHES];   /* kernels that one op starts; 0: 1 */
  PlanStackRouting routing;
  PlanLoads loads;
  gboolean runs_ahead;      /* at the end of a step it waits for the loss, not for the update */
  PlanCtaPolicy cta_policy; /* of NCCL's communicators */
  gboolean joins; /* small collectives are issued with others (planner/schedule/joined.h) */
} PlanStackHost;

G_END_DECLS
