-- Items that dispatch has passed over, for nobody with credit selects them: members `subid position` of one score, so in the
-- order of their texts: what is of another priority has its rank before the position. Each item stands here once with an empty
-- subid; and again for a subscriber who selects it though its mark is beyond it, because the item came back, is more urgent, or
-- was found while there was no credit.
-- So many of these for a subscriber, and what was passed over is examined for it anew. `pages` are what many look through alike;
-- `named` is whether anything stands here by the name of a subscriber, once that has been asked.
-- CALL: pages = {}, named = nil, places = {}, last = nil
local passed = {MOST = 1000}

-- A text that sorts as items are to go out, by digits alone: a padded position begins with seven zeros and a digit that is none.
function passed.place(position)
  if not call.partition_hinted then
    -- Many look through the same.
    call.passed_places[position] = call.passed_places[position] or positions.padded(position)
    return call.passed_places[position]
  end
  local rank, padded = hints.rank(position), positions.padded(position)
  if not rank then return padded end
  return (rank < hints.USUAL and '00000000' or '') .. rank .. padded
end

function passed.member(subid, position)
  return subid .. ' ' .. passed.place(position)
end

-- Whether there is anything by the name of a subscriber, who is behind then.
local function noted()
  if call.passed_named == nil then call.passed_named = redis.call('ZLEXCOUNT', key.passed, '(!', '+') > 0 end
  return call.passed_named
end

-- Up to `count` of a subid's after the place `mark`.
function passed.after(subid, mark, count)
  local name = subid .. ' ' .. mark
  local page = name .. ' ' .. count
  if subid ~= '' and not noted() then return {} end
  if not call.passed_pages[page] then
    local found = redis.call('ZRANGEBYLEX', key.passed, '(' .. name, '(' .. subid .. '!', 'LIMIT', 0, count)
    for i, member in ipairs(found) do found[i] = hints.unpadded(member) end
    call.passed_pages[page] = found
  end
  return call.passed_pages[page]
end

-- There is something for a subscriber before its mark.
function passed.note(subid, position)
  call.passed_pages = {}
  if subid ~= '' then call.passed_named = true end
  redis.call('ZADD', key.passed, 0, passed.member(subid, position))
end

local function forget(subid)
  call.passed_pages = {}
  redis.call('ZREMRANGEBYLEX', key.passed, '[' .. subid .. ' ', '(' .. subid .. '!')
end

-- The last place where anything has stood in this script, empty where nothing has.
local function last()
  if not call.passed_last then
    local member = redis.call('ZRANGE', key.passed, '(!', '[ ', 'BYLEX', 'REV', 'LIMIT', 0, 1)[1]
    call.passed_last = member and string.sub(member, 2) or ''
  end
  return call.passed_last
end

local function tell(subid, entry, mark)
  passed.note(subid, entry.position)
  behind.keep(subid, mark)
  if redis.call('ZLEXCOUNT', key.passed, '[' .. subid .. ' ', '(' .. subid .. '!') > passed.MOST then
    forget(subid)
    behind.keep(subid, '')
  end
end

-- Whom an item may be for falls behind by it; who has examined what comes after an item that came back has to be told of it.
function passed.put(entry)
  local place, before = passed.place(entry.position), last()
  local subids, by = selectors.met(entry)
  passed.note('', entry.position)
  if place > before then call.passed_last = place end
  behind.meet(entry.position, place, by)
  for _, subid in ipairs(subids) do
    local mark = behind.mark(subid)
    if not mark and place > before then
      behind.set(subid, before)
    elseif (not mark or mark >= place) and selectors.selects(selectors.get(subid), entry) then
      tell(subid, entry, mark or before)
    end
  end
end

-- Takes an item out, if it stands here; as `stands`, only for a partition that selects.
function passed.remove(position)
  call.passed_pages = {}
  behind.part(position)
  local members = {passed.member('', position)}
  if noted() then
    for i, subid in ipairs(behind.all()) do members[i + 1] = passed.member(subid, position) end
  end
  redis.call('ZREM', key.passed, unpack(members))
end

-- Whether anything less urgent than usual stands here.
function passed.late()
  return redis.call('ZLEXCOUNT', key.passed, '[ ' .. hints.USUAL, '(!') > 0
end

function passed.stands(position)
  return redis.call('ZSCORE', key.passed, passed.member('', position))
end

-- A subscription selects something else now, or nothing any more.
function passed.choose(subid, said)
  if (selectors.said(subid) or '') == said then return end
  forget(subid)
  selectors.put(subid, said)
end

-- When nobody selects and everything has gone, nobody need look here again.
function passed.over()
  if redis.call('EXISTS', key.selectors) == 1 or redis.call('EXISTS', key.passed) == 1 then return false end
  redis.call('HDEL', key.meta, 'selects')
  call.partition_selects = false
  return true
end
