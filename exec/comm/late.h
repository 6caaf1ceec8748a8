/* A library that is loaded when it is first needed, so that a program also starts where the library
 * is not installed. The library's own header declares its functions; we define each of them as a
 * wrapper that calls the loaded one (exec/nccl/nccl-calls.c, exec/cuda/cudnn-calls.c). */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

typedef struct
{
  const char *name;   /* "libnccl.so.2" */
  const char *remedy; /* how to install it, for the message */
  gsize is_tried;     /* whether loading was tried, which happens once */
  void *handle;       /* NULL: not installed */
  char *why;          /* why it could not be loaded */
} ExecLate;

/* Finds a function. NULL: the library is not installed, or too old to have it. */
void *exec_late_find (ExecLate *self, const char *function);

G_END_DECLS
