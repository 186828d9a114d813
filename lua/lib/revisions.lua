-- Revisions order the states of a node's record. A partition has the revision of the record that it was last updated from, so it is never
-- newer than the record, unless Redis has lost a change of the record.
local revisions = {}

-- Sets a revision above `last` and above all that were lost with Redis's last second: no two states of a record have the same revision.
-- It is Redis's time in microseconds if that is larger, for the reasons given at `partition.next_number`.
function revisions.raise(last)
  local revision = string.format('%.0f', math.max(tonumber(last) + 1, clock.micros()))
  redis.call('HSET', key.node, 'revision', revision)
  return revision
end
