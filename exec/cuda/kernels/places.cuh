/* Where tokens of a part of a sequence are in the whole one: planner/schedule/sequence.c, for
 * devices; and by which angles rotary positions turn there. */
#pragma once
#include "exec/cuda/kernels/launch.cuh"
#include "planner/schedule/sequence.h"

namespace
{

/* The part of a sequence that the rank `turn` ranks before this one holds; 0: this rank's own. */
inline PlanSequencePart
part_of (const ExecArgs *args, uint64_t length, uint64_t turn)
{
  uint64_t part = (uint64_t)exec_manner (args, PLAN_MANNER_PART);
  uint64_t parts = (uint64_t)exec_manner (args, PLAN_MANNER_PARTS);

  return plan_sequence_part (parts > 0 ? (part + parts - turn) % parts : 0, parts, length);
}

/* How many parts a sequence has. */
inline uint64_t
parts_of (const ExecArgs *args)
{
  double parts = exec_manner (args, PLAN_MANNER_PARTS);

  return parts > 0 ? (uint64_t)parts : 1;
}

/* The place in the whole sequence of token `at` of the part. */
__device__ inline uint64_t
place_of (const PlanSequencePart &part, uint64_t at)
{
  return at < part.piece ? part.places[0] + at : part.places[1] + (at - part.piece);
}

/* A row's place in its document, where rows have those, else that of token `at` of the part in the
 * whole sequence. */
__device__ inline uint64_t
position_of (const int32_t *places, uint64_t row, const PlanSequencePart &part, uint64_t at)
{
  return places != NULL ? (uint64_t)places[row] : place_of (part, at);
}

/* How many tokens of the part come before a place in the whole sequence. */
__device__ inline uint64_t
before_place (const PlanSequencePart &part, uint64_t place)
{
  uint64_t first = place > part.places[0] ? at_most (place - part.places[0], part.piece) : 0;

  return first + (place > part.places[1] ? at_most (place - part.places[1], part.piece) : 0);
}

/* How far a place turns each of the pairs that a launch rotates, in 2^-64 of a turn: whole turns
 * overflow, so that an angle is exact at any place without arithmetic in fp64, of which most GPUs
 * have little. */
struct Angles
{
  float magnitude; /* of the rotated pair */
  uint64_t turns[THREADS];
};

struct Rotations
{
  float cosine[THREADS], sine[THREADS];
};

inline uint64_t
turns_of (double radians)
{
  double turns = fmod (fabs (radians) / (2 * G_PI), 1);
  uint64_t parts = (uint64_t)ldexp (turns, 64);

  return radians < 0 ? 0 - parts : parts;
}

/* Stores the sine and cosine of a pair at a place as those of number `i`. */
__device__ inline void
store_rotation (Rotations &rotations, unsigned i, const Angles &angles, unsigned pair,
                uint64_t place)
{
  float half_turns = (float)(int64_t)(place * angles.turns[pair]) / 9223372036854775808.0f;
  float sine, cosine;

  sincospif (half_turns, &sine, &cosine);
  rotations.cosine[i] = angles.magnitude * cosine;
  rotations.sine[i] = angles.magnitude * sine;
}

}
