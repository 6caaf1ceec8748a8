/* The part of PlanStack that is about weights: gathered, rounded to fp8, transposed. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

/* How long embedding and head stay gathered, if weights are sharded. */
typedef enum
{
  PLAN_OUTER_STAYS,      /* always */
  PLAN_OUTER_DROPS,      /* except while the optimizer works */
  PLAN_OUTER_EACH_PASS,  /* from the start of a forward pass to the end of its backward pass */
  PLAN_OUTER_OWN_GROUPS, /* each while it is used; the head up to the start of its backward pass */
} PlanOuterWeights;

/* Where gathered weights lie while kernels read them. */
typedef enum
{
  PLAN_GATHERED_IN_PLACE, /* where the gather puts them */
  PLAN_GATHERED_COPIED,   /* in a copy */
  PLAN_GATHERED_IN_GRADS, /* weights in mxfp8 in the memory of gradients, else in place */
} PlanGathered;

/* Which weights a kernel rounds to fp8 together. */
typedef enum
{
  PLAN_QUANTISED_SHARDS, /* what the rank has of a bucket */
  PLAN_QUANTISED_UNITS,  /* the same; weights with scales by square in a buffer of the whole unit */
  PLAN_QUANTISED_ON_USE, /* a GEMM's; the copies of weights and activations live as long as it */
} PlanQuantised;

/* When weights in fp8 are transposed, for devices that need it. */
typedef enum
{
  PLAN_TRANSPOSED_BACKWARD, /* in each backward pass, for it */
  PLAN_TRANSPOSED_BOTH,     /* in each pass, the forward pass's for nothing */
  PLAN_TRANSPOSED_ONCE,     /* in the forward pass of the first micro batch, for the whole step */
} PlanTransposed;

/* How weights that stay gathered from step to step are gathered after an update. */
typedef enum
{
  PLAN_WHOLE_AS_UPDATED, /* each bucket beside the update of the next bucket */
  PLAN_WHOLE_IN_TURN,    /* each bucket when the one before it is first used */
  PLAN_WHOLE_AT_ONCE,    /* all by one call, with buffers of its own */
} PlanWholeWeights;

/* What decides how many units are gathered ahead of their use. */
typedef enum
{
  PLAN_AHEAD_COMM_UNIT, /* the communication unit */
  PLAN_AHEAD_ONE,       /* nothing: always one */
  /* The communication unit, in hooks of modules, which gather even what is not used: the output
   * layer's gathers units, and HFSDP gathers shards over replicas for both passes. */
  PLAN_AHEAD_HOOKS,
} PlanAhead;

/* How weights are gathered, and for how long. */
typedef struct
{
  PlanOuterWeights outer;     /* embedding and head */
  gboolean gathers_each_pass; /* optim_grads gathers in each forward pass, not once per step */
  PlanWholeWeights whole; /* with strategy=optim; with optim_grads unless it gathers in each pass */
  PlanGathered gathered;
  /* No rounded shard is kept: main weights are rounded as they are gathered. */
  gboolean rounds_as_gathered;
  PlanAhead ahead;
  PlanTransposed transposed;
  PlanQuantised quantised;
  /* With PLAN_WHOLE_AT_ONCE, weights are gathered as lists. Parameters of a unit; host time to send
   * a rank's piece of a parameter; time to copy such a piece to where it belongs. */
  gint64 unit_tensors, piece_ns, copy_ns;
} PlanStackWeights;

G_END_DECLS
