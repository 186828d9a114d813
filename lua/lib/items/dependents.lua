-- Items that wait until others have ended, their parents. `dependents` has a JSON record of each: `parents`, in the order of the publish,
-- each with its `node`, that one's incarnation (`life`), its `item` and a `state`. That is '' until the parent's partition knows who waits,
-- then 'awaited' with that `partition` and the parent's `token` there, and in the end how the parent has ended. `regardless` says that the
-- item goes out however they end, `once` is by what a repeat of its publish is recognised. The cursor passes over such an item: it is made
-- ready when the last parent has ended. `handovers_told` has when a frontend last asked for the parents, under `*POSITION`.
local dependents = {MARK = '*'}

function dependents.add(position, record)
  if not call.partition_before.dependents then
    partition.turn_on('dependents')
    call.partition_before.dependents = '1'
  end
  call.rare_keys_any = true
  redis.call('HSET', key.dependents, position, record)
  redis.call('ZADD', key.handovers_told, call.partition_stamp, dependents.MARK .. position)
end

-- Returns the record of an item as text, or nil.
function dependents.text(position)
  return call.partition_before.dependents and redis.call('HGET', key.dependents, position) or nil
end

function dependents.count()
  return call.partition_before.dependents and redis.call('HLEN', key.dependents) or 0
end

-- Returns up to `most` positions, in no order.
function dependents.some(most)
  local found, cursor = {}, '0'
  if most <= 0 or not call.partition_before.dependents then return found end
  repeat
    local page = redis.call('HSCAN', key.dependents, cursor, 'COUNT', most)
    cursor = page[1]
    for i = 1, #page[2], 2 do
      if #found < most then found[#found + 1] = page[2][i] end
    end
  until cursor == '0' or #found == most
  return found
end

-- The item has left, or waits for nothing any more.
function dependents.forget(position)
  write_buffer.add('HDEL', key.dependents, position)
  write_buffer.add('ZREM', key.handovers_told, dependents.MARK .. position)
end

-- Whether the publish of the item is not finished: some parents' partitions do not know yet who waits.
function dependents.is_begun(position)
  local text = dependents.text(position)
  if not text then return false end
  for _, parent in ipairs(cjson.decode(text).parents) do
    if parent.state == '' then return true end
  end
  return false
end

-- Announces an item whose parents are to be asked for, and again five seconds later unless somebody did.
function dependents.resume(mark)
  local position = string.sub(mark, 2)
  if not dependents.text(position) then
    redis.call('ZREM', key.handovers_told, mark)
    return
  end
  call.rare_keys_any = true
  redis.call('ZADD', key.handovers_told, call.partition_stamp, mark)
  notices.tell({'dependency', mark})
end
