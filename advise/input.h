/* AdviseInput: what a question is about: a model, a cluster, a plan, and what is known of costs. */
#pragma once
#include "planner/cluster/cluster.h"
#include "planner/model/model.h"
#include "planner/plan/plan.h"
#include "sim/cost/adjust.h"
#include <glib.h>
G_BEGIN_DECLS

/* `plan` is not resolved. */
typedef struct
{
  PlanModel *model;
  PlanCluster *cluster;
  char *cluster_spec; /* the words that stand for it; NULL: none, the store gave it */
  Plan plan;
  const SimAdjustments *adjustments; /* NULL: none */
  const char *db;                    /* the store, for what was timed on this machine; borrowed */
  const char *comm;                  /* what carries collectives there; NULL: threads */
  guint cudnn;         /* whose words on attention are taken; 0: the newest's that are known */
  gboolean is_of_many; /* of processes that may have a store each: only what is shipped is taken */
} AdviseInput;

void advise_input_clear (AdviseInput *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (AdviseInput, advise_input_clear)

/* The words for a cluster with what --hw says, which may be NULL, in place of what it has; the
 * caller frees. */
char *advise_cluster_words (const char *spec, char *const *hw);

/* A cluster's name, and how it differs from the one of that name; the caller frees. */
char *advise_cluster_name (const PlanCluster *cluster);

/* "optim_grads_params mbs=1 gbs=128 seq=8192": the fields people look at, then those set otherwise.
 */
char *advise_plan_label (const Plan *resolved);

G_END_DECLS
