-- Revisions of a node's record: which of two states of it is the later one. A partition has the revision of the record that it
-- was last brought up to, so none is newer than its record, unless Redis has lost a change of the record.
local revisions = {}

-- Gives a node a revision above `last`, and above all that were lost with the last second: no two states of a record have the
-- same revision. For the reasons of `partition.next_number` it is Redis's time in microseconds, where that is larger.
function revisions.raise(last)
  local revision = string.format('%.0f', math.max(tonumber(last) + 1, clock.micros()))
  redis.call('HSET', key.node, 'revision', revision)
  return revision
end
