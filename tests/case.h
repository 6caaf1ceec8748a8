/* Cases as tests write them: names of a model and a cluster, and "field=value field=value". What is
 * no case aborts the test with the reason. */
#pragma once
#include "planner/case/case.h"
#include "planner/lower/lower.h"
G_BEGIN_DECLS

static inline void
test_plan_set (Plan *plan, const char *words)
{
  g_auto (GStrv) pairs = g_strsplit (words, " ", -1);
  g_autoptr (GError) error = NULL;
  for (char **pair = pairs; *pair; pair++)
    {
      g_auto (GStrv) halves = g_strsplit (*pair, "=", 2);
      if (**pair && !plan_set (plan, halves[0], halves[1], &error))
        g_error ("%s: %s", *pair, error->message);
    }
}

static inline Plan
test_plan (const char *words)
{
  Plan plan;
  plan_init (&plan);
  test_plan_set (&plan, words);
  return plan;
}

static inline PlanCase *
test_case_of (const PlanModel *model, const PlanCluster *cluster, const Plan *plan)
{
  g_autoptr (GError) error = NULL;
  PlanCase *of = plan_case_new (model, cluster, plan, NULL, &error);
  if (!of)
    g_error ("%s", error->message);
  return of;
}

static inline PlanCase *
test_case (const PlanModel *model, const PlanCluster *cluster, const char *words)
{
  const Plan plan = test_plan (words);
  return test_case_of (model, cluster, &plan);
}

/* The same with some fields set otherwise; in its place. */
static inline void
test_case_set (PlanCase **of, const char *words)
{
  g_autoptr (PlanCase) before = *of;
  Plan plan = before->plan;
  test_plan_set (&plan, words);
  *of = test_case_of (before->model, before->cluster, &plan);
}

static inline PlanSchedule *
test_lower (const PlanCase *of, guint rank)
{
  g_autoptr (GError) error = NULL;
  PlanSchedule *schedule = plan_lower (of, rank, &error);
  if (!schedule)
    g_error ("%s", error->message);
  return schedule;
}

/* A case with what it borrows, and the schedule of rank 0. */
typedef struct
{
  PlanModel *model;
  PlanCluster *cluster;
  PlanCase *of;
  PlanSchedule *schedule;
} TestCase;

static inline void
test_case_init_of (TestCase *self, const char *model, const char *cluster, const Plan *plan)
{
  g_autoptr (GError) error = NULL;
  *self = (TestCase){ .model = plan_model_new (model, &error) };
  if (self->model)
    self->cluster = plan_cluster_new (cluster, &error);
  if (!self->cluster)
    g_error ("%s", error->message);
  self->of = test_case_of (self->model, self->cluster, plan);
  self->schedule = test_lower (self->of, 0);
}

static inline void
test_case_init (TestCase *self, const char *model, const char *cluster, const char *words)
{
  const Plan plan = test_plan (words);
  test_case_init_of (self, model, cluster, &plan);
}

static inline void
test_case_clear (TestCase *self)
{
  plan_schedule_free (self->schedule);
  plan_case_free (self->of);
  plan_cluster_free (self->cluster);
  plan_model_free (self->model);
}
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (TestCase, test_case_clear)

G_END_DECLS
