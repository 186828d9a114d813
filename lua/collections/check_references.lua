#!lua flags=allow-oom
-- Tell what has become of references: for how many ms each is locked; of one that has no lock here `unknown`, or `early` while a receive
-- under it would not be late. With a `reason` its lock ends, and the answer is `ended`; a holder whose work is withdrawn gets a notice.
-- ARGV: now revision frontend number retry | reference deadline reason
-- RETURNS: ok(*words) stale gone deleted
local refusal = partition.load()
if refusal then return refusal end
local ENDED, UNKNOWN, EARLY = 'ended', 'unknown', 'early'

local function answer(row)
  local position = references.position(row.reference)
  local flight = position and inflight.get_many({position})[1]
  if not flight then
    if position then redis.call('HDEL', key.references, row.reference, '=' .. position) end
    return references.is_late(row.deadline) and UNKNOWN or EARLY
  end
  if row.reason == '' then
    return string.format('%d', math.max(0, tonumber(redis.call('ZSCORE', key.lock_deadlines, position) or 0) - call.partition_now))
  end
  unsubscribing.give_back(flight, row.reason == 'gone' and 'bounced' or 'released', row.reason)
  return ENDED
end

return respond.make(budget.each(rows, answer), call.lock_end_freed)
