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
 * other field that begins with pp_ (has_layout), overlap_param_gather (has_gathers). */
typedef struct
{
  gboolean has_virtual, has_layout, has_gathers;
} PlanCutTold;

/* Whether pipelines are searched where nothing is said of them. Not for stack=fsdp2: Qwen3-235B on
 * 256 GPUs took 28 s of processors in place of 1.7, and 405B on 512 13 in place of 0.7, for the
 * same answers, none with stages. Not for stack=native on GPUs, where any strategy may have stages:
 * for 70B on 64 GPUs these made 8 million plans, and the search took 70 s in place of one. */
gboolean plan_cuts_any (const PlanStack *stack, const PlanCluster *cluster);

/* Lists the cuts to search, as PlanCut. The number of stages divides the devices. For each number
 * of stages the layers are divided evenly, with embedding and loss counted where only that divides
 * them; where it makes the slowest stage quicker, or no even cut exists, the end stages have fewer
 * layers in proportion to the cost of the loss instead; and where no number of virtual stages
 * divides the layers, the last virtual stage takes what is left. Each number of virtual stages
 * tried is at least twice the one before, since those between differ by less than predictions err;
 * when vpp is told, all numbers are listed. For a stack that cuts by cost only the number of stages
 * varies. */
GArray *plan_cuts_of (const PlanModel *model, const PlanCluster *cluster, const PlanStack *stack,
                      gint64 seq, PlanCutTold told);

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
