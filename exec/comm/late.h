/* A library that is looked for when it is first needed, so that a program starts where it is not:
 * calls of it are declared by its own header and defined here, one after the other, by what passes
 * them on (exec/nccl/nccl-calls.c, exec/cuda/cudnn-calls.c). */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  const char *name;   /* "libnccl.so.2" */
  const char *remedy; /* how to get it */
  gsize is_open;      /* asked for, once */
  void *handle;       /* NULL: it is not there */
  char *why;          /* why not */
} ExecLate;

/* The function, or NULL: the library is not there, or is too old to have it. */
void *exec_late_find (ExecLate *self, const char *function);

G_END_DECLS
