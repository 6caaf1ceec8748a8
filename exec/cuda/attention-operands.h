/* Operands of attention in the op list, for the files that launch it. */
#pragma once

enum
{
  OUT,
  LSE,
  QKV,
  WORK,
  KV
};

/* Backwards. */
enum
{
  BWD_DQKV,
  BWD_DOUT,
  BWD_OUT,
  BWD_LSE,
  BWD_QKV,
  BWD_WORK,
  BWD_KV
};
