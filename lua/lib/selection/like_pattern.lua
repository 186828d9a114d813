-- Matches a text with a pattern of LIKE, in characters of UTF-8: `_` is any one, `%` any number of them, and a character after a
-- backslash is itself.
-- CALL: forms, value, text
-- Caches patterns, and the last value: many patterns may be matched with one.
local like_pattern = {}

local function characters(text)
  local found = {}
  compare.count(#text / 4)
  for char in string.gmatch(text, '[%z\1-\127\194-\244][\128-\191]*') do found[#found + 1] = char end
  return found
end

-- Returns the pattern as characters, and which of them are wildcards.
local function read(text)
  local form, escaped = {wild = {}}, false
  for _, char in ipairs(characters(text)) do
    if char == '\\' and not escaped then
      escaped = true
    else
      form[#form + 1] = char
      form.wild[#form] = not escaped
      escaped = false
    end
  end
  return form
end

-- Greedy: it only ever returns to the last `%`, which bounds the work by both lengths.
function like_pattern.matches(value, pattern)
  if type(value) ~= 'string' or #value > compare.MOST_BYTES then return nil end
  if call.like_pattern_value ~= value then call.like_pattern_value, call.like_pattern_text = value, characters(value) end
  call.like_pattern_forms = call.like_pattern_forms or {}
  call.like_pattern_forms[pattern] = call.like_pattern_forms[pattern] or read(pattern)
  local text, form, here, at, anything, resume = call.like_pattern_text, call.like_pattern_forms[pattern], 1, 1, nil, nil
  while here <= #text do
    compare.count(0.25)
    local char, wild = form[at], form.wild[at]
    if wild and char == '%' then
      anything, resume = at, here
      at = at + 1
    elseif wild or char == text[here] then
      here, at = here + 1, at + 1
    elseif anything then
      resume = resume + 1
      here, at = resume, anything + 1
    else
      return false
    end
  end
  while form.wild[at] and form[at] == '%' do at = at + 1 end
  return at > #form
end
