-- Notes how the parents of waiting items end, and decides what becomes of the items: they go out, die, or wait on.
-- CALL: released = 0
-- `RESULTS` is how many bytes of results a header has in all; after `SOON_MS`, and later ever more seldom, parents are asked for again.
local parents = {SOON_MS = 60000, LATE_MS = 3600000, RESULTS = 16384, HEADER = 'stanzaq-parents'}

-- Returns the parents as the text of a header. Results are left out from where they are too long together.
local function header(record)
  local told, room = {}, parents.RESULTS
  for i, parent in ipairs(record.parents) do
    told[i] = {item = parent.item, state = parent.state}
    if parent.node ~= '' then told[i].node = parent.node end
    if parent.reason and parent.reason ~= '' then told[i].reason = parent.reason end
    if parent.result and #parent.result <= room then
      told[i].result, room = parent.result, room - #parent.result
    end
  end
  return cjson.encode(told)
end

-- All parents have ended: the item may go out, at its own place in the log. A later version, which is the item from now on, has the header.
local function release(position, entry, record)
  local asks = scheduling.of(entry)
  -- It is ready from now on, or from the end of its delay: until then it has not waited for a worker.
  local ready = math.max(asks.after, call.partition_now)
  local hints = string.format('%d %d %d', ready, scheduling.LAST - (asks.rank or scheduling.USUAL), asks.ends)
  local version = {item = entry.item, key = entry.key, by = entry.by, hints = hints,
    body = headers.add(entry.body, parents.HEADER, header(record))}
  rare_keys.write('HSET', key.replaced, position, log_entries.append(version, position))
  dependents.remove(position)
  if asks.after > call.partition_now then
    rare_keys.write('ZADD', key.delayed, asks.after, position)
  else
    redis.call('ZADD', scheduling.place(position))
  end
end

-- A parent has ended in another way than by an acknowledgement, so the item never goes out.
local function die(position, entry, record, reason)
  local item = items.name(position, entry)
  -- Parents that have not ended are told that it has left.
  redis.call('HSET', key.dependents, position, cjson.encode(record))
  if call.partition_options.dead_letters then
    dependents.leave(position)
    outbox_items.start(position, entry, 0, '', reason)
  else
    items.drop(position, entry)
    group_order.remove(position)
  end
  outcomes.note_end(position, item, 'dead', reason, '')
end

-- Returns why the item dies ('' if it does not), and how many of its parents are not known yet and have not ended.
local function judge(record)
  local reason, begun, left = '', 0, 0
  for _, parent in ipairs(record.parents) do
    if parent.state == '' then
      begun = begun + 1
    elseif parent.state == 'awaited' then
      left = left + 1
    elseif parent.state ~= 'acknowledged' and not record.regardless and reason == '' then
      reason = 'parent-' .. parent.state
    end
  end
  return reason, begun, left
end

-- Notes what became of a parent. Returns 'ok', 'item-not-found' if the item does not wait any more, or 'unknown' if it was removed: its
-- publish is not finished and names a parent that is not there.
function parents.note(row)
  local position, text = row.position, dependents.text(row.position)
  local entry = text and log_entries.current(position)
  if not entry then return 'item-not-found' end
  local record = cjson.decode(text)
  local parent = record.parents[tonumber(row.index)]
  budget.spend(#text / budget.PAGE)
  if row.state == 'unknown' and parent.state == '' then
    items.drop(position, entry)
    dedupe.forget({item = entry.item, once = record.once})
    redis.call('HDEL', key.replies, position)
    return 'unknown'
  elseif row.state == 'awaited' then
    if parent.state == '' then parent.state, parent.partition, parent.token = 'awaited', tonumber(row.partition), row.token end
  elseif parent.state == '' or parent.state == 'awaited' then
    -- A parent that is lost has died in a way that nobody knows.
    parent.state, parent.reason, parent.result = row.state == 'unknown' and 'lost' or row.state, row.reason, nil
    if row.result ~= '' then parent.result = row.result end
  end
  local reason, begun, left = judge(record)
  if reason ~= '' then
    die(position, entry, record, reason)
  elseif begun + left == 0 then
    release(position, entry, record)
    call.parents_released = call.parents_released + 1
  else
    redis.call('HSET', key.dependents, position, cjson.encode(record))
    if begun == 0 then
      -- Parents that were lost with their node, or by a failover, are missed at last.
      local age = call.partition_now - positions.split(position)
      dependents.ask_later(position, math.min(parents.LATE_MS, math.max(parents.SOON_MS, age)))
    end
  end
  return 'ok'
end
