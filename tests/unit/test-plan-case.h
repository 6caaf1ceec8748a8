/* Shared by tests of plans and of rules. */
#pragma once
#include "planner/base/error.h"
#include "planner/plan/plan.h"
#include "planner/plan/rules.h"
#include <check.h>
#include <stdlib.h>
#include <string.h>

#define MODEL "llama3-8b"

/* A plan from "field=value" words that spaces separate. */
static inline Plan
plan_of (const char *words)
{
  g_auto (GStrv) pairs = g_strsplit (words, " ", -1);
  g_autofree char *text = g_strjoinv ("\n", pairs);
  g_autoptr (GError) error = NULL;
  Plan plan;
  ck_assert_msg (plan_parse (text, "test", &plan, &error), "%s", error ? error->message : "");
  return plan;
}

static inline gboolean
resolve (const char *model_spec, const char *cluster_spec, const char *words, Plan *out,
         GError **error)
{
  g_autoptr (PlanModel) model = plan_model_new (model_spec, NULL);
  g_autoptr (PlanCluster) cluster = plan_cluster_new (cluster_spec, NULL);
  const Plan plan = plan_of (words);
  ck_assert (model && cluster);
  return plan_resolve (&plan, model, cluster, out, error);
}
