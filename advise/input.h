/* AdviseInput: what a question is about: a model, a cluster, a plan, and the sources of costs. */
#pragma once
#include "planner/cluster/cluster.h"
#include "planner/model/model.h"
#include "planner/plan/plan.h"
#include "planner/schedule/workspaces.h"
#include "sim/cost/adjust.h"
#include <glib.h>
G_BEGIN_DECLS

/* `plan` is not resolved: defaults are not filled in yet. */
typedef struct
{
  PlanModel *model;
  PlanCluster *cluster;
  char *cluster_spec; /* the user's words for the cluster; NULL: none, it is from the store */
  Plan plan;
  const SimAdjustments *adjustments; /* NULL: none */
  const char *db;                    /* the store with timings of this machine; borrowed */
  const char *comm;                  /* the collective backend of those timings; NULL: threads */
  guint cudnn; /* version of cuDNN for attention's workspaces; 0: the newest known */
  const PlanWorkspaces
      *asked;          /* what cuDNN answered for this input; if given, nothing else counts */
  gboolean is_of_many; /* one of many processes, each with its own store: uses shipped data only */
} AdviseInput;

void advise_input_clear (AdviseInput *self);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (AdviseInput, advise_input_clear)

/* The words for a cluster whose facts --hw changes; `hw` may be NULL. The caller frees. */
char *advise_cluster_words (const char *spec, char *const *hw);

/* A cluster's name, and how it differs from the shipped one of that name; the caller frees. */
char *advise_cluster_name (const PlanCluster *cluster);

/* A plan in short: the fields that people look at, then those that differ from their defaults,
 * "optim_grads_params mbs=1 gbs=128 seq=8192". */
char *advise_plan_label (const Plan *resolved);

G_END_DECLS
