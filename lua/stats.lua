#!lua flags=no-writes
-- Count what a partition holds.
-- KEYS: meta log replaced parked ready delayed inflight handover subscribers held turns resting
-- ARGV: now revision
-- RETURNS: ok stale gone deleted
-- WRITES:
--- @include partition positions credit
local refusal = partition.load()
if refusal then return refusal end
local in_flight, dying = redis.call('HLEN', key.inflight), redis.call('HLEN', key.handover)
local delayed = redis.call('ZCARD', key.delayed)
local stored = redis.call('XLEN', key.log) - redis.call('HLEN', key.replaced) - redis.call('HLEN', key.parked)
local waiting = math.max(0, stored - in_flight - dying)

local oldest = redis.call('ZRANGE', key.ready, 0, 0)[1]
local following = redis.call('XRANGE', key.log, '(' .. partition.cursor, '+', 'COUNT', 1)[1]
if following and (not oldest or positions.after(oldest, following[1])) then oldest = following[1] end
local age = oldest and math.max(0, partition.now - positions.split(oldest)) or 0

-- Exact up to 500 subscribers with free credit; beyond that a lower bound.
local _, room = credit.candidates(500)
return {'ok', {waiting, math.max(0, waiting - delayed), delayed, in_flight, dying, age,
  redis.call('HLEN', key.subscribers), room}, {}, {}, {}, 0, 0, partition.token}
