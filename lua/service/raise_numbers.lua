#!lua
-- Raise a partition's numbers to a time, when a copy of the data was put back: tokens, fences and positions that it gives from now on are
-- above those that were given after the copy was made. With `check` nothing changes. Returns the time in ms, and the last number before.
-- ARGV: now revision floor_ms check
-- RETURNS: ok(now_ms token) stale gone deleted
local refusal = partition.load()
if refusal then return refusal end
local before = call.partition_token
if arg.check == '' then
  partition.raise(tonumber(arg.floor_ms))
  partition.save()
end
return respond.results({call.partition_now, before})
