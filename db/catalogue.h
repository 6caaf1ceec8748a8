/* The shipped catalogue, attached to a store as `catalogue`: what others measured, with sources.
 *
 * Found as $FSDPLAN_CATALOGUE, beside the program where that was built, or where it was installed;
 * read only. catalogue.sql is the document. */
#pragma once
#include "db/store.h"
#include <glib.h>
G_BEGIN_DECLS

/* IO when there is none, INVALID when it is something else, UNSUPPORTED when it is of another
 * version than this program reads. */
gboolean db_catalogue_attach (DbStore *self, GError **error);

/* The catalogue alone, with an empty store in memory. */
DbStore *db_catalogue_open (GError **error);

typedef struct
{
  gint64 size_bytes; /* 0: large, not stated */
  double bus_bytes_per_s;
  gint64 time_ns; /* 0: not stated */
  char *row;      /* of the table it was taken from */
} DbCurvePoint;

/* A collective over some ranks. */
typedef struct
{
  char *id;
  char *gpu;       /* NULL: not stated */
  char *op;        /* "all_gather", "reduce_scatter", "all_reduce", "all_to_all" */
  char *algorithm; /* "auto" (NCCL's choice), "ring", "nvls", "symmetric" */
  gint64 ranks, nodes;
  gint64 nvlink_domain;   /* 0: a node's */
  double nic_bytes_per_s; /* per GPU, one way; 0: not stated */
  char *link, *network;   /* in words; no network inside a node */
  char *note;             /* may be NULL */
  char *source;
  GArray *points; /* DbCurvePoint, smallest size first */
} DbCurve;

/* Of one GPU and operation, or of all for NULL; by gpu, op, ranks and id. Elements are DbCurve,
 * owned by the array. */
GArray *db_catalogue_list_curves (DbStore *self, const char *gpu, const char *op, GError **error);

/* A matrix product (m x k) x (k x n) of bf16 factors, or `batch` of them in one launch. */
typedef struct
{
  char *row, *gpu;
  char *kind; /* "product", "grouped" */
  char *pass; /* "forward", "dgrad", "wgrad" */
  gint64 batch, m, n, k;
  char *layout; /* "TN"; may be NULL */
  gboolean accumulates;
  char *out_dtype;
  double flops_per_s;
  char *source;
} DbProduct;

/* Of one GPU, or of all for NULL; by gpu, kind, pass, m, n, k. Elements are DbProduct. */
GArray *db_catalogue_list_products (DbStore *self, const char *gpu, GError **error);

/* Comparable with one another only: the source counts operations in a way of its own. */
typedef struct
{
  char *row, *gpu;
  char *pass; /* "forward", "backward" */
  gint64 batch, seq, heads, kv_heads, qk_dim, v_dim;
  double peak_flops_per_s, share; /* of that peak */
  char *source;
} DbAttention;

/* By gpu, pass, seq, heads. Elements are DbAttention. */
GArray *db_catalogue_list_attention (DbStore *self, const char *gpu, GError **error);

/* As in the store's table of that name. */
typedef struct
{
  gint64 cudnn;
  char *architecture, *pass, *mask, *format;
  gint64 batch, seq, heads, kv_heads, head_dim, workspace_bytes;
  char *source;
} DbAttentionWorkspace;

/* On one architecture, or on all for NULL. Elements are DbAttentionWorkspace. */
GArray *db_catalogue_list_workspaces (DbStore *self, const char *architecture, GError **error);

/* The table of published training runs that lies beside the catalogue, in the columns of
 * planner/runs/run-columns.h; the caller frees. */
char *db_catalogue_runs_path (void);

/* Of what those runs taught, as sim/cost/adjust.h reads it; the caller frees. */
char *db_catalogue_adjustments_path (void);

/* A fact of a device or cluster, or a parameter of the cost model. */
typedef struct
{
  char *of; /* the device, cluster or parameter set */
  char *key;
  double value;
  char *unit; /* base unit, or empty */
  char *source;
} DbFact;

/* By name and key; NULL names all. Elements are DbFact. */
GArray *db_catalogue_list_gpu_facts (DbStore *self, const char *gpu, GError **error);
GArray *db_catalogue_list_cluster_facts (DbStore *self, const char *cluster, GError **error);
GArray *db_catalogue_list_parameters (DbStore *self, const char *params, GError **error);

G_END_DECLS
