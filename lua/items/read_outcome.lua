#!lua flags=no-writes
-- Return the outcomes of items that the node keeps, for publishers that asked for them and for owners; of an item that has not ended, and
-- whose publisher asked, an empty one; nothing of others.
-- ARGV: now revision number | sender owner item
-- RETURNS: ok stale gone deleted | ok
local refusal = partition.load()
if refusal then return refusal end
local function is_awaited(item)
  local position = items.positions_of({item})[1]
  local successor = position and redis.call('HGET', key.successors, position)
  return position and (redis.call('HEXISTS', key.replies, position) == 1 or successor and redis.call('HEXISTS', key.replies, successor) == 1)
end

local results = budget.each(rows, function(row)
  local line = call.partition_before.replies and redis.call('HGET', key.results, row.item)
  local valid = line and tonumber(redis.call('ZSCORE', key.result_expiry, row.item) or 0) > call.partition_now
  if valid and (row.owner == '1' or jids.bare(outcome_record.jid(line)) == jids.bare(row.sender)) then return {'ok', line} end
  if call.partition_before.replies and is_awaited(row.item) then return {'ok', ''} end
  return {'ok'}
end)
return {'ok', results, {}, {}, {}, 0, 0, call.partition_token}
