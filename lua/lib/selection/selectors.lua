-- Selectors: which items a subscription takes. subid -> `length text conditions program`: the text as requested, the conditions that an
-- item must meet, and the compiled program.
-- CALL: of, named, count
local selectors = {MOST = 100}

-- Returns false for a subscription without a selector.
function selectors.get(subid)
  call.selectors_of = call.selectors_of or {}
  local known = call.selectors_of[subid]
  if known == nil then
    local line = redis.call('HGET', key.selectors, subid)
    local length, from = string.match(line or '', '^(%d+) ()')
    known = line and {line = line}
    if line then
      local compiled, begin = string.sub(line, from + length), nil
      known.groups, begin = conditions.read(compiled)
      known.program = string.sub(compiled, begin)
    end
    call.selectors_of[subid] = known
  end
  return known
end

-- Returns the selector in the form that subscriptions and partitions exchange; nil without one.
function selectors.line(subid)
  local selector = call.partition_before.selects and selectors.get(subid)
  return selector and selector.line or nil
end

-- Whether a row requests a selector; `=` keeps the present one.
function selectors.is_requested(row)
  return row.selector ~= '' and row.selector ~= '='
end

-- Whether one more subscription may have a selector: each examines the skipped items for itself.
function selectors.room(subid)
  return redis.call('HLEN', key.selectors) < selectors.MOST or redis.call('HEXISTS', key.selectors, subid) == 1
end

-- Returns the set of subids with a selector.
function selectors.subids()
  if not call.selectors_named then
    call.selectors_named = {}
    for _, subid in ipairs(redis.call('HKEYS', key.selectors)) do call.selectors_named[subid] = true end
  end
  return call.selectors_named
end

function selectors.count()
  call.selectors_count = call.selectors_count or redis.call('HLEN', key.selectors)
  return call.selectors_count
end

-- Sets or, if empty, removes the selector. A new one has examined nothing.
function selectors.put(subid, line)
  local earlier = selectors.get(subid)
  if earlier then conditions.remove(subid, earlier.groups) end
  call.selectors_of[subid], call.selectors_named, call.selectors_count = nil, nil, nil
  selection_progress.reset(subid, line ~= '')
  if line == '' then
    redis.call('HDEL', key.selectors, subid)
  else
    redis.call('HSET', key.selectors, subid, line)
    conditions.put(subid, selectors.get(subid).groups)
    partition.turn_on('selects')
  end
end

local function property(entry, name)
  if name == 'p.message-id' then return entry.item ~= '' and entry.item or positions.item_id(entry.position) end
  if name == 'p.user-id' then return entry.by end
  if name == 'p.group-id' then return entry.key ~= '' and entry.key or nil end
  if name == 'p.content-type' then return entry.kind end
  if name == 'p.creation-time' then return (positions.split(entry.position)) end
  if name == 'h.delivery-count' then return entry.past.attempts - entry.past.untried end
  return nil
end

-- Adds the function `value` to an entry with `position` and `past`. Once: many selectors may use it.
local function open(entry)
  if entry.value then return end
  entry.headers, entry.kind = headers.read(entry.body)
  function entry.value(name)
    if string.sub(name, 1, 2) == 'a.' then return entry.headers[string.sub(name, 3)] end
    return property(entry, name)
  end
end

function selectors.selects(selector, entry)
  open(entry)
  return selector_program.selects(selector.program, entry.value)
end

-- Returns the subids that an entry may be for, as a list and as a set.
function selectors.met(entry)
  open(entry)
  local found, known = conditions.met(entry)
  if found then return found, known end
  found, known = {}, selectors.subids()
  for subid in pairs(known) do found[#found + 1] = subid end
  return found, known
end
