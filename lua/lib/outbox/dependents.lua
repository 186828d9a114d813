-- Items that wait until others have ended, their parents. `dependents` has a JSON record of each: `parents`, in the order of the publish,
-- each with its `node`, that one's incarnation (`life`), its `item` and a `state`. That is '' until the parent's partition knows who waits,
-- then 'awaited' with that `partition` and the parent's `token` there, and in the end how the parent has ended. With `regardless` the
-- item goes out however its parents end; `once` is the name by which a repeat of its publish is recognised. The cursor passes over such
-- an item: it is made ready when the last parent has ended. Until then the outbox has when a frontend asks for the parents, under
-- `parents/POSITION`.
local dependents = {}

local function entry(position)
  return 'parents/' .. position
end

function dependents.add(position, record)
  partition.turn_on('dependents')
  redis.call('HSET', key.dependents, position, record)
  -- Who publishes it asks for them.
  dependents.ask_later(position, outbox.FIRST_MS)
end

-- Lets a frontend ask for the parents in so many ms.
function dependents.ask_later(position, pause)
  outbox.put(entry(position), call.partition_now + pause)
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

-- The item waits for nothing any more.
function dependents.remove(position)
  redis.call('HDEL', key.dependents, position)
  outbox.remove(entry(position))
end

-- The item has left. Its parents' partitions are told that know of it.
function dependents.leave(position)
  local text = dependents.text(position)
  if not text then return end
  dependents.remove(position)
  if not string.find(text, '"awaited"', 1, true) then return end
  redis.call('HSET', key.outbox_records, 'left/' .. position, text)
  outbox.put('left/' .. position)
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
