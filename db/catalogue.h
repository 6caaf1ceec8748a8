/* The shipped catalogue, attached to a store as `catalogue`: measurements by others, with sources.
 *
 * It is looked for at $FSDPLAN_CATALOGUE, then beside a program that was built, then where it was
 * installed. It is read only; catalogue.sql documents it. */
#pragma once
#include "db/store.h"
#include <glib.h>
G_BEGIN_DECLS

/* Attaches the catalogue. IO when there is none, INVALID when the file is something else,
 * UNSUPPORTED when its version is not the one that this program reads. */
gboolean db_catalogue_attach (DbStore *self, GError **error);

/* Opens the catalogue alone, with an empty store in memory. */
DbStore *db_catalogue_open (GError **error);

typedef struct
{
  gint64 size_bytes; /* 0: large, not stated */
  double bus_bytes_per_s;
  gint64 time_ns; /* 0: not stated */
  char *row;      /* name of the row in the table that it was taken from */
} DbCurvePoint;

/* Measured bandwidths of a collective over some ranks, by size. */
typedef struct
{
  char *id;
  char *gpu;       /* NULL: not stated */
  char *op;        /* "all_gather", "reduce_scatter", "all_reduce", "all_to_all" */
  char *algorithm; /* "auto" (NCCL's choice), "ring", "nvls", "symmetric" */
  gint64 ranks, nodes;
  gint64 nvlink_domain;   /* 0: that of a node */
  double nic_bytes_per_s; /* per GPU, one way; 0: not stated */
  char *link, *network;   /* in words; `network` is NULL inside a node */
  char *note;             /* may be NULL */
  char *source;
  GArray *points; /* DbCurvePoint: by rising size */
} DbCurve;

/* The curves of one GPU and operation, or of all for NULL, sorted by gpu, op, ranks and id.
 * Elements are DbCurve, owned by the array. */
GArray *db_catalogue_list_curves (DbStore *self, const char *gpu, const char *op, GError **error);

/* A GEMM (m x k) x (k x n) of bf16 matrices, or `batch` of them in one launch. */
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

/* The GEMMs of one GPU, or of all for NULL, sorted by gpu, kind, pass, m, n, k. Elements are
 * DbProduct. */
GArray *db_catalogue_list_products (DbStore *self, const char *gpu, GError **error);

/* Measured attention. These rows are comparable only with one another, because their source counts
 * operations in its own way. */
typedef struct
{
  char *row, *gpu;
  char *pass; /* "forward", "backward" */
  gint64 batch, seq, heads, kv_heads, qk_dim, v_dim;
  double peak_flops_per_s, share; /* of that peak rate */
  char *source;
} DbAttention;

/* Sorted by gpu, pass, seq, heads. Elements are DbAttention. */
GArray *db_catalogue_list_attention (DbStore *self, const char *gpu, GError **error);

/* A row as in the store's table of workspaces. */
typedef struct
{
  gint64 cudnn;
  char *architecture, *pass, *mask, *format;
  gint64 batch, seq, heads, kv_heads, head_dim, workspace_bytes;
  char *source;
} DbAttentionWorkspace;

/* The workspaces on one architecture, or on all for NULL. Elements are DbAttentionWorkspace. */
GArray *db_catalogue_list_workspaces (DbStore *self, const char *architecture, GError **error);

/* The path of the table of published training runs beside the catalogue, with the columns of
 * planner/runs/run-columns.h; the caller frees. */
char *db_catalogue_runs_path (void);

/* The path of the parameters fitted to those runs, in the form of sim/cost/adjust.h; the caller
 * frees. */
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

/* The facts of one name, sorted by name and key; NULL stands for all names. Elements are DbFact. */
GArray *db_catalogue_list_gpu_facts (DbStore *self, const char *gpu, GError **error);
GArray *db_catalogue_list_cluster_facts (DbStore *self, const char *cluster, GError **error);
GArray *db_catalogue_list_parameters (DbStore *self, const char *params, GError **error);

G_END_DECLS
