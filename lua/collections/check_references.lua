#!lua flags=allow-oom
-- Tell what has become of references: `unknown` of one that has no lock here, else for how many ms it is locked. With a `reason` its lock
-- ends, and the answer is `ended`; a holder whose work is withdrawn gets a notice.
-- ARGV: now revision frontend sent number retry | reference reason
-- RETURNS: ok stale gone deleted
local refusal = partition.load()
if refusal then return refusal end
local ENDED, UNKNOWN = 'ended', 'unknown'

local function answer(row)
  local position = references.position(row.reference)
  local flight = position and inflight.get_many({position})[1]
  if not flight then
    if position then redis.call('HDEL', key.references, row.reference, '=' .. position) end
    return UNKNOWN
  end
  if row.reason == '' then
    return string.format('%d', math.max(0, tonumber(redis.call('ZSCORE', key.lock_deadlines, position) or 0) - call.partition_now))
  end
  unsubscribing.give_back(flight, row.reason == 'gone' and 'bounced' or 'released', row.reason)
  return ENDED
end

return respond.make(budget.each(rows, answer), call.lock_end_freed)
