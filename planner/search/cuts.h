/* Which divisions ("cuts") a search tries: of a model into pipeline stages, and of an expert's
 * matrices into parts (expert tensor parallelism). */
#pragma once
#include "planner/cluster/cluster.h"
#include "planner/model/model.h"
#include "planner/plan/plan.h"
#include "planner/plan/stack.h"
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  gint64 stages, n_virtual;
  gint64 first_layers, last_layers; /* PLAN_UNSET: as many layers as the other stages */
  gint64 last_short;                /* how many layers fewer the last virtual stage has */
  gboolean counts_ends;             /* embedding and loss count as one layer each */
  gboolean gathers_beside;          /* overlap_param_gather is on */
} PlanCut;

/* What the user fixed, so that it is the same in all cuts and not searched: vpp (has_virtual), any
 * other field that begins with pp_ (has_layout), overlap_param_gather (has_gathers); how many
 * virtual stages all stages have together (parts; 0: any). */
typedef struct
{
  gboolean has_virtual, has_layout, has_gathers;
  gint64 parts;
} PlanCutFixed;

/* Whether pipelines are searched although the user says nothing about them. They are not for
 * stack=fsdp2: with them searches took far longer (Qwen3-235B on 256 GPUs: 28 s of CPU time, not
 * 1.7 s; Llama 405B on 512 GPUs: 13 s, not 0.7 s) and answered the same, always without stages.
 * They are not for stack=native on GPUs, where any strategy may have stages: for a 70B model on 64
 * GPUs that made 8 million plans, and the search took 70 s, not 1 s. */
gboolean plan_cuts_any (const PlanStack *stack, const PlanCluster *cluster);

/* How many virtual stages a plan's layout has (pp_layout); 0: it has none. */
gint64 plan_cuts_fixed (const Plan *base);

/* Lists the cuts to search, as PlanCut. The number of stages divides the devices. For each number
 * of stages the layers are divided evenly; embedding and loss are counted as layers where only that
 * makes them divisible. Where no number of virtual stages divides the layers, the last virtual
 * stage takes what is left. Where no even cut exists, or an uneven one makes the slowest stage
 * quicker, the stages at the ends have fewer layers instead, by what the loss costs. Each number of
 * virtual stages tried is at least twice the one before, since those between differ by less than
 * predictions err; when vpp is fixed, all numbers are listed. For a stack that cuts by cost only
 * the number of stages varies. */
GArray *plan_cuts_of (const PlanModel *model, const PlanCluster *cluster, const PlanStack *stack,
                      gint64 seq, PlanCutFixed fixed);

/* Whether a plan is worth trying. FALSE where a cut makes a choice pointless that the base of the
 * search does not itself demand: recompute of more layers than a virtual stage has, or more virtual
 * stages where half as many already leave less than a hundredth of the compute as bubble. */
gboolean plan_cut_may_help (const Plan *plan, const Plan *base, const PlanModel *model,
                            const PlanCluster *cluster);

/* The largest number of parts into which an expert is split; 1 where its stack does not split
 * experts. Parts stay within the devices joined by links, and no part is narrower than an efficient
 * GEMM. */
gint64 plan_cuts_of_expert (const PlanModel *model, const PlanCluster *cluster, const Plan *base);

G_END_DECLS
